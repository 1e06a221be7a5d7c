/** The formats of prompts; also the endings of their files. */
export const FORMAT_NAMES = ["jsonl", "txt", "csv", "tsv"] as const;
export type FormatName = (typeof FORMAT_NAMES)[number];
