/**
 * How the files of a run are named: by the id alone (`id`), by the id and the words of the prompt (`words`), or with words
 * where the prompt has no id of its own (`auto`).
 */
export const NAMINGS = ["id", "words", "auto"] as const;
export type Naming = (typeof NAMINGS)[number];

/** The parts of an input line that a name depends on. */
interface Asked {
  prompt: string;
  source?: { id?: string | undefined } | undefined;
}

/** The longest name, without its extension: names stay readable in a list. */
const MAX_CHARS = 55;
/** Fewer characters of words than this say nothing. */
const LEAST_CHARS = 3;

/** Returns the name of an image without its extension, such as `item_000001-red-fox`. */
export function imageStem(id: string, naming: Naming, asked: Asked | undefined): string {
  const hasOwnId = asked?.source?.id !== undefined;
  if (asked === undefined || naming === "id" || (naming === "auto" && hasOwnId)) return id;
  const words = asciiWords(asked.prompt);
  const left = MAX_CHARS - id.length - 1;
  const short = words.length <= left ? words : words.slice(0, Math.max(0, left + 1)).replace(/-?[^-]*$/, "");
  return short.length < LEAST_CHARS ? id : `${id}-${short}`;
}

/** The beginning of a prompt that is long enough for any name. */
const READ_CHARS = 400;

/** Returns the words of a prompt in plain letters and digits, joined by `-`. Empty for scripts without such letters. */
function asciiWords(prompt: string): string {
  return prompt
    .slice(0, READ_CHARS)
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replaceAll("ß", "ss")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-?(?:(?:an?|the)-)?/, "")
    .replace(/-+$/, "");
}
