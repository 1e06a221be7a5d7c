import { join } from "node:path";
import { z } from "zod";
import { ImgbatchError } from "../contract/errors.ts";
import { expandedCustomIds } from "../contract/limits.ts";
import { VERDICTS, type Verdict } from "../contract/review-api.ts";
import type { Clock } from "../kernel/clock.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { parseJson } from "../kernel/json.ts";
import { formatProblem } from "../prompts/problems.ts";
import { readRunInput } from "./directory/input.ts";
import { appendToJournal, readJournal } from "./directory/journal.ts";
import { REVIEW_FILE } from "./directory/names.ts";
import { readResults, readVersions } from "./directory/results.ts";
import type { ResultFile } from "./directory/run-files.ts";

/*
 * What people decide about the pictures of a run: `review.jsonl` in its directory, one decision a line, in the order in which
 * they were made. Lines are only ever appended. Every command that decides, in the browser or without one, uses this file.
 */

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, { error: "must be a SHA-256 in hexadecimal" });

const decisionSchema = z
  .strictObject({
    id: z
      .string()
      .min(1)
      .describe("for a verdict the custom_id of an image, for a choice the one of a prompt line"),
    version: sha256
      .nullable()
      .describe("the SHA-256 of the picture as it was made; null for an image that has none"),
    verdict: z
      .enum(VERDICTS, { error: `must be ${VERDICTS.join(", ")}, or null to take it back` })
      .nullable()
      .optional(),
    choose: z
      .union([z.int().min(1), sha256], { error: "must be the number of an image, from 1, or a SHA-256" })
      .nullable()
      .optional()
      .describe(
        "the image of the line: its number, from 1, or the SHA-256 of a version; null to take it back",
      ),
    words: z.string().optional().describe("what should change"),
    score: z.number().min(0).max(1).optional().describe("how good a judge finds it, from 0 to 1"),
    judge: z.string().optional().describe("the program that decided; absent for a person"),
    date: z.iso.datetime(),
  })
  .refine(({ verdict, choose }) => (verdict === undefined) !== (choose === undefined), {
    error: "needs either verdict or choose",
  });

/** A line of `review.jsonl`: a verdict about an image, or which image of a prompt line is chosen. */
export type Decision = z.infer<typeof decisionSchema>;

/** What counts: the last verdict for each image, and the last choice for each prompt line. Those taken back are left out. */
export interface Review {
  /** By the id of the image. */
  verdicts: ReadonlyMap<string, Decision & { verdict: Verdict }>;
  /** By the id of the prompt line. `version` is the hash of the chosen picture. */
  choices: ReadonlyMap<string, Decision & { choose: number | string }>;
  /** What should change, as it was said last about each picture, by version. */
  words: ReadonlyMap<string, string>;
}

/**
 * Reads the decisions about a run; none if the directory has no `review.jsonl`. A last line that was cut off by a kill is left out.
 * Throws `INVALID_INPUT`, with file and line, for a line that this version cannot read.
 */
export async function readReview(dir: string): Promise<Review> {
  const path = join(dir, REVIEW_FILE);
  const all = readJournal(path).flatMap((text, i) =>
    text.trim() === "" ? [] : parseDecision(path, i + 1, text),
  );
  const verdicts = new Map<string, Decision & { verdict: Verdict }>();
  const choices = new Map<string, Decision & { choose: number | string }>();
  const said = new Map<string, string>();
  for (const { verdict, choose, ...decision } of all) {
    if (decision.version !== null && decision.words !== undefined) said.set(decision.version, decision.words);
    if (verdict === null) verdicts.delete(decision.id);
    else if (verdict !== undefined) verdicts.set(decision.id, { ...decision, verdict });
    if (choose === null) choices.delete(decision.id);
    else if (choose !== undefined) choices.set(decision.id, { ...decision, choose });
  }
  return { verdicts, choices, words: said };
}

/**
 * Appends decisions; they are on disk when this resolves. A last line that was cut off by a kill is removed first. Other
 * processes may append at the same time, and the run may be at work. Throws `SAVE_FAILED`, and
 * `INVALID_INPUT` for a last line that was edited by hand.
 */
export async function addDecisions(
  dir: string,
  decisions: readonly Omit<Decision, "date">[],
  clock: Clock,
): Promise<void> {
  if (decisions.length === 0) return;
  const path = join(dir, REVIEW_FILE);
  const date = new Date(clock.nowMs()).toISOString();
  const dated = decisions.map((decision) => decisionSchema.parse({ ...decision, date }));
  await appendToJournal(path, dated, clock, (last, number) => parseDecision(path, number, last));
}

function parseDecision(file: string, line: number, text: string): Decision {
  const advice = "mend or remove this line, or use the version of imgbatch that wrote it";
  const wrong = (field: string | null, message: string) =>
    new ImgbatchError("INVALID_INPUT", formatProblem({ file, line, field, message }), { advice });
  let json: unknown;
  try {
    json = parseJson(text);
  } catch {
    throw wrong(null, "is not JSON");
  }
  const read = decisionSchema.safeParse(json);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  if (issue?.code === "unrecognized_keys")
    throw wrong(issue.keys[0] ?? null, "is no field of a decision that this version knows");
  throw wrong(issue?.path.join(".") || null, issue?.message ?? "is no decision");
}

/** A picture that a run has made, or the image that lacks one. */
interface ReviewedImage {
  /** The `custom_id` of the image. */
  id: string;
  /** The SHA-256 of its picture as it was made; null without one. */
  version: string | null;
}

/** A line of the prompts with its images. */
export interface ReviewedLine {
  id: string;
  /** In their order. */
  images: ReviewedImage[];
  /** Earlier pictures of these images, the newest last. */
  earlier: { id: string; version: string }[];
}

/**
 * Returns the decisions that choose an image of a line, by its number or by the version of an earlier picture. What was said about
 * other images of the line is taken back: one of them is chosen.
 */
export function chooseAmong(
  { id, images }: ReviewedLine,
  kept: Omit<Decision, "date"> & { version: string },
  choose: number | string,
  { verdicts }: Pick<Review, "verdicts">,
): Omit<Decision, "date">[] {
  const { version, judge } = kept;
  const others = images.filter((each) => each.id !== kept.id && verdicts.has(each.id));
  return [
    kept,
    ...others.map((each) => ({ ...each, verdict: null })),
    { id, version, choose, ...(judge !== undefined && { judge }) },
  ];
}

/** Returns what decisions name a picture by: its hash as it was made, which a conversion changes. */
export function versionOf({ original, sha256 }: Pick<ResultFile, "original" | "sha256">): string {
  return original?.sha256 ?? sha256;
}

/** Reads which images the lines of a run have. Without its prompts, each image is a line. */
export async function readReviewedLines(dir: string): Promise<ReviewedLine[]> {
  const [results, earlier, input] = await Promise.all([
    readResults(dir),
    readVersions(dir),
    readRunInput(dir),
  ]);
  const made = new Map(results.map((line) => [line.custom_id, line.files[0]]));
  const ids = new Map<string, string[]>();
  for (const { custom_id, output_count = 1 } of input.lines())
    ids.set(custom_id, expandedCustomIds(custom_id, output_count));
  const known = new Set([...ids.values()].flat());
  for (const id of made.keys()) if (!known.has(id)) ids.set(id, [id]);
  return [...ids].map(([id, images]) => ({
    id,
    images: images.map((each) => ({ id: each, version: versionOrNull(made.get(each)) })),
    earlier: earlier.flatMap(({ custom_id, files: [file] }) =>
      file !== undefined && images.includes(custom_id) ? [{ id: custom_id, version: versionOf(file) }] : [],
    ),
  }));
}

const versionOrNull = (file: ResultFile | undefined) => (file === undefined ? null : versionOf(file));

/**
 * Returns the images that the words of a flag name: ids of images or of lines, or patterns such as `icon-*`; several between
 * commas. Throws `USAGE` for a word that names none, with the nearest id.
 */
export function namedImages(
  lines: readonly ReviewedLine[],
  words: readonly string[],
  flag: string,
): ReviewedImage[] {
  const named = new Set<ReviewedImage>();
  for (const word of words) {
    const ids = matching(lines, word) === null ? word.split(",").map((each) => each.trim()) : [word];
    for (const id of ids.filter((each) => each !== "")) {
      const found = matching(lines, id);
      if (found === null) throw unknownId(lines, id, flag);
      for (const image of found) named.add(image);
    }
  }
  return lines.flatMap(({ images }) => images.filter((image) => named.has(image)));
}

/** Returns the images of an id or a pattern; null if there are none. An id that has a `*` itself is no pattern. */
function matching(lines: readonly ReviewedLine[], word: string): ReviewedImage[] | null {
  const exact = lines.flatMap(({ id, images }) =>
    id === word ? images : images.filter((image) => image.id === word),
  );
  if (exact.length > 0 || !word.includes("*")) return exact.length > 0 ? exact : null;
  const parts = word.split("*").map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"));
  const pattern = new RegExp(`^${parts.join(".*")}$`, "su");
  const found = lines.flatMap(({ id, images }) =>
    pattern.test(id) ? images : images.filter((image) => pattern.test(image.id)),
  );
  return found.length > 0 ? found : null;
}

/** Returns the line of an id. Throws `USAGE` for an unknown one. */
export function namedLine(lines: readonly ReviewedLine[], id: string, flag: string): ReviewedLine {
  const line = lines.find((each) => each.id === id);
  if (line === undefined) throw unknownId(lines, id, flag);
  return line;
}

function unknownId(lines: readonly ReviewedLine[], id: string, flag: string): ImgbatchError {
  const known = lines.flatMap((line) => [line.id, ...line.images.map((image) => image.id)]);
  const right = didYouMean(id, known);
  const what = id.includes("*") ? "no image of the run matches" : "the run has no image";
  const more = right === null ? "" : ` Did you mean ${right}?`;
  return new ImgbatchError("USAGE", `${flag}: ${what} ${JSON.stringify(id)}.${more}`, {
    param: flag,
    meant: right === null ? undefined : { typed: id, right },
  });
}
