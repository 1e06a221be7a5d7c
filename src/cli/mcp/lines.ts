import { createHash } from "node:crypto";
import { join } from "node:path";
import { z } from "zod";
import { shownPath } from "../../kernel/files.ts";
import { imageStem } from "../../runs/directory/names.ts";
import { readFacts } from "../../runs/directory/run-files.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { type Line, pathBelow, type Session } from "./call.ts";
import { MOST_PREVIEWS } from "./previews.ts";

export const previews = z
  .boolean()
  .default(false)
  .describe(`also return pictures of at most 256 px, at most ${MOST_PREVIEWS}`);
export const promptFiles = {
  files: z
    .array(z.string().min(1))
    .min(1)
    .describe(
      'prompt files below the root: .jsonl, .txt, .csv, .tsv; a JSONL line is {"prompt": …, "custom_id"?, "output_count"?, "reference_images"?: [paths], …}',
    ),
  output: z
    .string()
    .min(1)
    .optional()
    .describe("the directory of the run; default: <stem of the first file>-images in the root"),
  model: z.string().optional().describe("a model of the tool models; default: its first"),
  count: z.int().min(1).optional().describe("images for each prompt that sets no output_count"),
  references: z.array(z.string().min(1)).optional().describe("image files that every prompt gets"),
  variables: z
    .record(z.string(), z.union([z.string(), z.array(z.string())]))
    .optional()
    .describe("values of {{name}} in the prompts; @FILE has one a line"),
  update: z
    .boolean()
    .optional()
    .describe("the prompts of the run were edited: make only changed and added ones"),
};
type PromptFiles = z.infer<z.ZodObject<typeof promptFiles>>;

export async function submitLine(input: PromptFiles, session: Session, options: object): Promise<Line> {
  const below = (path: string) => pathBelow(session, path);
  const files = await Promise.all(input.files.map(below));
  const output = await below(input.output ?? defaultRunDirectory(files[0] ?? ""));
  const references = await Promise.all((input.references ?? []).map(below));
  const variables = [];
  for (const [name, value] of Object.entries(input.variables ?? {}))
    variables.push(`${name}=${await variableText(value, below)}`);
  return {
    command: "submit",
    arguments: files.map((file) => shownPath(session.context.cwd, file)),
    options: {
      output,
      ...(input.model === undefined ? {} : { model: input.model }),
      ...(input.count === undefined ? {} : { count: String(input.count) }),
      ...(input.update ? { update: true } : {}),
      ...(references.length === 0 ? {} : { reference: references }),
      ...(variables.length === 0 ? {} : { var: variables }),
      ...options,
    },
    pays: output,
  };
}

/** Writes values as `--var` takes them. A list has values only: none of them names a file. */
async function variableText(
  value: string | string[],
  below: (path: string) => Promise<string>,
): Promise<string> {
  if (typeof value === "string" && /^@[^@]/.test(value)) return `@${await below(value.slice(1))}`;
  const values = typeof value === "string" ? [value] : value.map((each) => each.replace(/^@/, "@@"));
  const written = values.map((each) => each.replace(/(\\*),/g, "$1$1\\,"));
  return written.map((each, i) => (i === written.length - 1 ? each : each.replace(/\\+$/, "$&$&"))).join(",");
}

export const targetLine =
  (command: Line["command"], options: (input: { [name: string]: unknown }) => object = () => ({})) =>
  async (input: { target: string }, session: Session): Promise<Line> => {
    await pathBelow(session, input.target);
    return { command, arguments: [input.target], options: { ...options(input) } };
  };

export const generateInput = z.object({
  prompt: z.string().min(1),
  model: z.string().optional().describe("a model of the tool models with realtime; default: its first"),
  aspect_ratio: z.string().optional().describe("width to height, such as 16:9"),
  size: z.string().optional().describe("512, 1K, 2K or 4K, or pixels such as 1536x1024"),
  images: z.array(z.string().min(1)).optional().describe("image files below the root to edit or follow"),
  output: z
    .string()
    .min(1)
    .optional()
    .describe("the directory of this image; default: one below generated/ that the arguments name"),
  variant: z.int().min(1).optional().describe("another number makes another image of the same arguments"),
  previews,
});

/** Returns the line of a run with one image, in a directory that the same arguments find again. */
export async function generateLine(input: z.infer<typeof generateInput>, session: Session): Promise<Line> {
  const images = await Promise.all((input.images ?? []).map((path) => pathBelow(session, path)));
  const { prompt, aspect_ratio, size, model, variant } = input;
  const row = { prompt, aspect_ratio, size, ...(images.length === 0 ? {} : { reference_images: images }) };
  const key = createHash("sha256").update(JSON.stringify([row, model, variant]));
  for (const path of images) key.update(await hashOf(path, session.context.cwd));
  const name = imageStem(key.digest("hex").slice(0, 8), "words", { prompt });
  const output = await pathBelow(session, input.output ?? join("generated", name));
  return {
    command: "generate",
    options: { file: "-", output, ...(model === undefined ? {} : { model }) },
    stdin: JSON.stringify(row),
    pays: output,
    outlasts: true,
  };
}

/** A file that cannot be read, or that leads out of the root once it is open, is reported by the command. */
async function hashOf(path: string, root: string): Promise<string> {
  try {
    return (await readFacts(path, 0, root)).sha256;
  } catch {
    return "";
  }
}
