import { createHash } from "node:crypto";
import { join } from "node:path";
import { z } from "zod";
import { ITEM_STATUSES } from "../../contract/statuses.ts";
import { shownPath } from "../../kernel/files.ts";
import { imageStem } from "../../runs/directory/names.ts";
import { readFacts } from "../../runs/directory/run-files.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { type Done, type failureOf, type Line, pathBelow, type Session } from "./call.ts";
import { MOST_PREVIEWS } from "./previews.ts";

const previews = z
  .boolean()
  .default(false)
  .describe(`also return pictures of at most 256 px, at most ${MOST_PREVIEWS}`);
const promptFiles = {
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

async function submitLine(
  input: PromptFiles,
  session: Session,
  options: { dryRun: true } | { detach: true },
): Promise<Line> {
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
      ...(input.update ? { isUpdate: true } : {}),
      ...(references.length === 0 ? {} : { references }),
      ...(variables.length === 0 ? {} : { variables }),
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

const generateInput = z.object({
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
async function generateLine(input: z.infer<typeof generateInput>, session: Session): Promise<Line> {
  const images = await Promise.all((input.images ?? []).map((path) => pathBelow(session, path)));
  const { prompt, aspect_ratio, size, model, variant } = input;
  const row = { prompt, aspect_ratio, size, ...(images.length === 0 ? {} : { reference_images: images }) };
  const key = createHash("sha256").update(JSON.stringify([row, model, variant]));
  for (const path of images) key.update(await hashOf(path, session.context.cwd));
  const name = imageStem(key.digest("hex").slice(0, 8), "words", { prompt });
  const output = await pathBelow(session, input.output ?? join("generated", name));
  return {
    command: "generate",
    options: { promptFile: "-", output, ...(model === undefined ? {} : { model }) },
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

/** A tool: what a client is told of it, and the command line that it stands for. */
export interface Tool {
  name: string;
  title: string;
  description: string;
  annotations: {
    readOnlyHint: boolean;
    destructiveHint: boolean;
    idempotentHint: boolean;
    openWorldHint: boolean;
  };
  inputSchema: z.ZodObject;
  outputSchema: z.ZodObject;
  /** Returns the command line for checked arguments. Throws `OUTSIDE_ROOT`. */
  lineOf(input: never, session: Session): Promise<Line>;
  /** Turns its result into the tool's. */
  answer(done: Done, input: never, session: Session): Promise<Answer> | Answer;
  /** Turns wrong input into a result. Left out where that is an error. */
  wrong?(failure: ReturnType<typeof failureOf>, session: Session): Promise<Answer>;
}

export interface Answer {
  json: Record<string, unknown>;
  /** The files to show small, if the caller asked for it. */
  pictures?: readonly string[];
}

/** Gives each tool its types, which a list of tools cannot keep. */
const tool = <Input extends z.ZodObject>(
  details: Omit<Tool, "inputSchema" | "lineOf" | "answer"> & {
    inputSchema: Input;
    lineOf(input: z.infer<Input>, session: Session): Promise<Line>;
    answer(done: Done, input: z.infer<Input>, session: Session): Promise<Answer> | Answer;
  },
): Tool => details;

const LOOKS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };
const MAKES = { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true };

const FREE_AGAIN =
  "Call it again with the same arguments after any error or lost answer: that is free and finds the same images.";

const usd = z.number().describe("US dollars; no real money where play_money is true");
const batch = z
  .looseObject({ id: z.string(), status: z.string() })
  .describe("a batch as the service returns it: counts, costs, error, why it waits");
const common = {
  ok: z.boolean().describe("false: something failed, see error"),
  error: z.looseObject({ code: z.string(), message: z.string() }).optional(),
  notes: z.array(z.string()).describe("what a person would have been told"),
  next: z.string().nullable().describe("the next step, as a command line: use the tool of that name"),
};
const budget = z
  .object({ max_cost: z.number().nullable(), spent: z.number(), left: z.number() })
  .describe("US dollars: what a person allowed, what is spent or held, what is left for paid images");
const image = z.looseObject({
  custom_id: z.string(),
  status: z.string(),
  files: z.array(z.string()).describe("absolute paths"),
});
const page = {
  limit: z.int().min(1).max(1000).default(100),
  offset: z.int().min(0).default(0),
};
const target = z.string().min(1).describe("a batch id, or the directory of a run");

const slice = <T>(all: readonly T[], { limit, offset }: { limit: number; offset: number }) => ({
  items: all.slice(offset, offset + limit),
  total: all.length,
});

interface ResultItem extends Record<string, unknown> {
  status: string;
  files: { path: string }[];
}

/** The images of a run's results, with absolute paths. */
function imagesOf({ json }: Done, directory: string): (Record<string, unknown> & { files: string[] })[] {
  return ((json.items ?? []) as ResultItem[]).map(({ files, ...item }) => ({
    ...item,
    files: files.map(({ path }) => join(directory, path)),
  }));
}

const pathsIn = (images: readonly { files: string[] }[]) => images.flatMap(({ files }) => files);

/** The answer of a tool that has submitted batches. */
async function submitted({ json, http }: Done, _input: unknown, session: Session): Promise<Answer> {
  const { directory, replayed = null, batches = [], counts } = json;
  const facts = { directory, replayed, batches, ...(counts === undefined ? {} : { counts }) };
  return { json: { ...facts, budget: await session.spending.budget(http) } };
}

const submittedOutput = z.object({
  ...common,
  directory: z.string(),
  replayed: z
    .boolean()
    .nullable()
    .describe("true: these batches existed already, and nothing was paid again"),
  batches: z.array(batch),
  counts: z.record(z.string(), z.number()).optional(),
  budget,
});

export const TOOLS: readonly Tool[] = [
  tool({
    name: "check_prompts",
    title: "Check prompts",
    description:
      "Checks prompt files, counts their images and says what they would cost. Sends nothing that costs money. Use it before submit.",
    annotations: LOOKS,
    inputSchema: z.object(promptFiles),
    outputSchema: z.object({
      ...common,
      directory: z.string().optional(),
      model: z.string().optional(),
      item_count: z.number().optional(),
      image_count: z
        .number()
        .optional()
        .describe("images to make; those of a run that is here already are not counted"),
      estimated_cost: usd.nullable().optional().describe("null: not known"),
      play_money: z.boolean().describe("the images are drawings, free of charge"),
      problems: z
        .array(z.string())
        .describe("what is wrong, by file and line; nothing can be submitted before it is mended"),
      budget,
    }),
    lineOf: async (input, session) => {
      const { pays: _, ...line } = await submitLine(input, session, { dryRun: true });
      return line;
    },
    answer: async ({ json, http }, _input, { spending }) => {
      const {
        directory,
        model,
        item_count,
        image_count,
        estimated_cost,
        play_money = false,
        problems = [],
      } = json;
      const next = "the tool submit with the same arguments";
      const facts = { next, directory, model, item_count, image_count, estimated_cost, play_money, problems };
      return { json: { ...facts, budget: await spending.budget(http) } };
    },
    wrong: async ({ error, next }, { spending }) => {
      const problems = error.details ?? [error.message];
      const facts = { ok: false, error, notes: [], next, play_money: false, problems };
      return { json: { ...facts, budget: await spending.budget(null) } };
    },
  }),
  tool({
    name: "submit",
    title: "Submit prompts",
    description: `Submits prompt files and returns at once; then use status, and download when the batches have ended. ${FREE_AGAIN} Paid images need the consent of a person to a total (see budget).`,
    annotations: MAKES,
    inputSchema: z.object(promptFiles),
    outputSchema: submittedOutput,
    lineOf: (input, session) => submitLine(input, session, { detach: true }),
    answer: submitted,
  }),
  tool({
    name: "status",
    title: "Show batches",
    description:
      "Shows how batches or runs stand now. Never waits: ask again after some seconds, for large runs after a minute.",
    annotations: LOOKS,
    inputSchema: z.object({ targets: z.array(target).min(1).max(100) }),
    outputSchema: z.object({ ...common, batches: z.array(batch), budget }),
    lineOf: async ({ targets }, session) => {
      for (const each of targets) await pathBelow(session, each);
      return { command: "status", arguments: targets };
    },
    answer: async ({ json, http }, _input, { spending }) => ({
      json: { batches: json.batches, budget: await spending.budget(http) },
    }),
  }),
  tool({
    name: "items",
    title: "List images",
    description: "Lists the images of a batch or a run, with status and error.",
    annotations: LOOKS,
    inputSchema: z.object({ target, status: z.enum(ITEM_STATUSES).optional(), ...page }),
    outputSchema: z.object({
      ...common,
      items: z.array(z.looseObject({ custom_id: z.string(), status: z.string() })),
      total: z.number(),
    }),
    lineOf: async ({ target: named, status }, session) => {
      await pathBelow(session, named);
      return { command: "items", arguments: [named], options: status === undefined ? {} : { status } };
    },
    answer: ({ json }, input) => ({ json: slice(json.items as object[], input) }),
  }),
  tool({
    name: "download",
    title: "Download images",
    description:
      "Saves the images of ended batches below the root and verifies them. Returns paths. Call it again to resume or repair.",
    annotations: { ...LOOKS, readOnlyHint: false },
    inputSchema: z.object({
      target,
      output: z
        .string()
        .min(1)
        .optional()
        .describe("the directory; default: that of the run, or one with the name of the batch"),
      previews,
      ...page,
    }),
    outputSchema: z.object({
      ...common,
      directory: z.string(),
      counts: z.record(z.string(), z.number()),
      contact_sheet: z.string().describe("an HTML page with all images"),
      results: z.string(),
      items: z.array(image),
      total: z.number(),
    }),
    lineOf: async ({ target: named, output }, session) => {
      const dir = await pathBelow(session, output ?? named);
      await pathBelow(session, named);
      const isNamed = output !== undefined;
      return { command: "download", arguments: [named], options: isNamed ? { output: dir } : {} };
    },
    answer: async (done, input, session) => {
      const directory = await pathBelow(session, String(done.json.directory));
      const found = slice(imagesOf(done, directory), input);
      const { counts } = done.json;
      const files = {
        contact_sheet: join(directory, "index.html"),
        results: join(directory, "results.jsonl"),
      };
      return {
        json: { directory, counts, ...files, ...found },
        pictures: input.previews ? pathsIn(found.items) : [],
      };
    },
  }),
  tool({
    name: "generate",
    title: "Generate one image",
    description: `Makes one image now and returns its path. ${FREE_AGAIN} For many images use submit, which costs less. Paid images need the consent of a person to a total (see budget).`,
    annotations: MAKES,
    inputSchema: generateInput,
    outputSchema: z.object({
      ...common,
      directory: z.string(),
      is_new: z.boolean().describe("false: it was here already, and nothing was paid"),
      cost: usd.nullable(),
      play_money: z.boolean(),
      items: z.array(image),
      budget,
    }),
    lineOf: generateLine,
    answer: async (done, input, { spending }) => {
      const { directory, made_count, cost, play_money = false } = done.json;
      const items = imagesOf(done, String(directory));
      const facts = { directory, is_new: Number(made_count) > 0, cost, play_money, items };
      return {
        json: { ...facts, budget: await spending.budget(done.http) },
        pictures: input.previews ? pathsIn(items) : [],
      };
    },
  }),
  tool({
    name: "retry",
    title: "Retry failed images",
    description:
      "Makes the failed images of a run again, into the same directory, and returns at once. After a lost answer call it again: it goes on with the same batch. Once that has ended, another call makes and pays what has failed again.",
    annotations: { ...MAKES, idempotentHint: false },
    inputSchema: z.object({
      directory: z.string().min(1).describe("the directory of the run"),
      include_refused: z.boolean().optional().describe("also images whose prompts were refused"),
      include_lost: z.boolean().optional().describe("also images that are lost; they are paid again"),
    }),
    outputSchema: submittedOutput,
    lineOf: async ({ directory, include_refused, include_lost }, session) => {
      const pays = await pathBelow(session, directory);
      return {
        command: "retry",
        arguments: [pays],
        options: {
          ...(include_refused ? { withRefused: true } : {}),
          ...(include_lost ? { withLost: true } : {}),
          detach: true,
        },
        pays,
      };
    },
    answer: submitted,
  }),
  tool({
    name: "models",
    title: "List models",
    description: "Lists the models with their prices: of batches, or with realtime of the tool generate.",
    annotations: LOOKS,
    inputSchema: z.object({ realtime: z.boolean().default(false) }),
    outputSchema: z.object({ ...common, models: z.array(z.looseObject({ id: z.string() })) }),
    lineOf: async ({ realtime }) => ({ command: "models", options: realtime ? { realtime: true } : {} }),
    answer: ({ json }) => {
      const models = json.models as { id?: string; name?: string }[];
      const idOf = ({ id, name = "" }: (typeof models)[number]) => id ?? name.replace(/^models\//, "");
      return { json: { models: models.map((model) => ({ id: idOf(model), ...model })) } };
    },
  }),
];
