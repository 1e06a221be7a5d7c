import { isRefusalCode, isTerminal } from "../../contract/statuses.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { hideUsedKeys } from "../../kernel/hide-keys.ts";
import { type Cost, numberToMicros, sumCosts } from "../../kernel/money.ts";
import { formatSize, truncateCodePoints } from "../../kernel/text.ts";
import { type Variant, variantByPrompt } from "../../prompts/comparison.ts";
import type { Options } from "../../prompts/options.ts";
import type { FileLine } from "../../prompts/problems.ts";
import type { Oddities } from "../checks.ts";
import type { InputLine } from "../directory/input.ts";
import type { ResultLine } from "../directory/results.ts";
import type { ResultFile } from "../directory/run-files.ts";
import type { RunState } from "../directory/run-state-schema.ts";

/**
 * Characters that no XML document may hold, and that no page can show; and those that would reverse the order of the
 * text after them. Marks of one character's direction stay: some languages need them.
 */
const CONTROLS = /(?![\t\n\r])[\p{Cc}\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu;
const NAMES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Removes keys, and characters that a document cannot hold, from foreign text. Controls become visible symbols. */
export function printable(text: string): string {
  return hideUsedKeys(text)
    .toWellFormed()
    .replace(CONTROLS, (c) => {
      const code = c.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : "\ufffd";
    });
}

/** For the text and the quoted attributes of HTML and XML alike. */
export function escapeMarkup(text: string): string {
  return printable(text).replace(/[&<>"']/g, (c) => NAMES[c] ?? c);
}

/** The content of the reports of a run, independent of their form. */
export interface RunReport {
  /** The name of the run, else that of its directory. */
  title: string;
  /** As the caller named it. */
  directory: string;
  /** The same as CI systems know it: from the root of the repository on, with `/`. */
  directoryFromRoot: string;
  /** Null where the run did not make its batches. */
  model: string | null;
  /** The models and providers of all images, each once. The run's model is the first. */
  makers: string[];
  batches: ReportBatch[];
  /** When the run began and ended, ISO 8601 in UTC. */
  startedAt: string;
  endedAt: string;
  /** Null while the cost of a batch is not known. */
  cost: Cost | null;
  /** How much of it this command paid, in micro-dollars. */
  paidNowMicroUsd: number;
  /** One for each image that was asked for, in the order of the input; only those that are made while the run is under way. */
  images: ReportImage[];
  /** How many images were asked for. */
  askedCount: number;
  /** Whether lines of the input name their images. Otherwise metadata tells them apart. */
  hasOwnIds: boolean;
  failedCount: number;
  /** How many of them were refused for what their prompts ask. */
  refusedCount: number;
  /** Earlier pictures in `versions/`. They are not among `images`. */
  versionCount: number;
  /** The command that makes the failed images again; null when there are none. */
  retryCommand: string | null;
}

interface ReportBatch {
  id: string;
  status: string;
}

export interface ReportImage {
  id: string;
  /** Null when the input is not known. Very many long prompts are cut. */
  prompt: string | null;
  /** Where the prompt is, as CI systems know it. Null when it is not known, and for standard input. */
  fileLine: FileLine | null;
  files: readonly ResultFile[];
  variant: Variant;
  /** What it was asked for besides the prompt. */
  options: readonly string[];
  /** What its line says besides, by name, as text. Long ones are cut. */
  metadata: readonly (readonly [name: string, text: string])[];
  /** Provider and model version where not all images have the same, and the seed. A fact that is not known is absent. */
  origin: readonly string[];
  /** US dollars; null when it is not known, or no real money. */
  cost: number | null;
  /** How long the provider took; null when it is not known. */
  tookMs: number | null;
  /** Differences that a person should know. */
  notes: readonly string[];
  /** What looks odd about its picture. */
  odd: readonly string[];
  /** The reason why the image is missing; null if it exists. */
  error: { code: string; message: string } | null;
}

interface ReportFacts {
  directory: string;
  name: string | null;
  model: string | null;
  state: RunState;
  lines: readonly EndedImage[];
  /** By the id of each image, as `readRunInput` returns it. */
  input: { get(id: string): AskedImage | undefined };
  nowMs: number;
  /** See `RunReport`. Default: as many as there are lines. */
  askedCount?: number;
  /** See `RunReport`. Default: 0. */
  versionCount?: number;
  /** What looks odd about the pictures. Default: nothing. */
  oddities?: Oddities;
  /** Instead of the costs of the batches, for a run without any. */
  cost?: Cost | null;
  /** See `RunReport`. Default: all of the cost. */
  paidNowMicroUsd?: number;
  /** Returns a path of the command line from the root of the repository on. Default: the same path. */
  fromRoot?: (path: string) => string;
  /** Instead of `imgbatch retry`, where that does not fit; null for none. */
  retryCommand?: string | null;
}

/** A line of the results, of whatever kind of run. */
export type EndedImage = Pick<
  ResultLine,
  "custom_id" | "status" | "files" | "error" | "provider" | "seed" | "notes" | "cost" | "took_ms"
> & { model_version?: string | null };

/** What the input of a run says about an image. */
type AskedImage = Pick<InputLine, "prompt"> &
  Partial<Pick<InputLine, "source" | "model" | "metadata">> &
  Options;

/** The most characters of all prompts in a report, so that it can still be opened, and the fewest of each prompt. */
const PROMPT_CHARS = 4_000_000;
const LEAST_PROMPT_CHARS = 200;

/** Builds the report of a run. An image counts as failed when it has no file here. */
export function buildReport(facts: ReportFacts): RunReport {
  const { directory, state: runState, lines, input } = facts;
  const { retryCommand = `${programName()} retry ${shellWord(directory)}`, fromRoot = (path) => path } =
    facts;
  const promptChars = Math.max(LEAST_PROMPT_CHARS, Math.floor(PROMPT_CHARS / lines.length));
  const cost = facts.cost ?? costOf(runState);
  const sameOf = (values: (string | null | undefined)[]) => {
    const [only, ...others] = new Set(values.filter((value) => value != null));
    return others.length === 0 ? (only ?? null) : null;
  };
  const made = lines.filter(({ files }) => files.length > 0);
  const provider = sameOf(made.map((line) => line.provider));
  const version = sameOf(made.map((line) => line.model_version));
  const usual = runState.request?.model ?? runState.model ?? facts.model;
  const asModel = (id: string) => input.get(id)?.model ?? usual;
  const used = new Set(lines.map(({ custom_id }) => asModel(custom_id)));
  const models = [...new Set([usual, ...used])].filter((model) => model !== null && used.has(model));
  const images = lines.map((line): ReportImage => {
    const asked = input.get(line.custom_id);
    const prompt = asked === undefined ? null : truncateCodePoints(asked.prompt, promptChars, "…");
    const at = fileLineOf(asked?.source);
    const model = asModel(line.custom_id);
    const { custom_id: id, files, error, status, notes = [] } = line;
    const reason = error ?? { code: "NO_IMAGE", message: `This image has no file (${status}).` };
    return {
      id,
      prompt,
      files,
      notes,
      odd: (facts.oddities?.get(id) ?? []).map(({ text }) => text),
      error: files.length > 0 ? null : reason,
      fileLine: at && { ...at, file: fromRoot(at.file) },
      variant: variantOf(asked, prompt ?? "", model),
      options: optionTexts(asked, line.seed),
      metadata: metadataTexts(asked?.metadata),
      origin: originOf(line, [provider, version, model]),
      cost: cost?.isPlay === true ? null : (line.cost ?? null),
      tookMs: line.took_ms ?? null,
    };
  });
  const failedCount = images.filter((image) => image.error !== null).length;
  const refusedCount = images.filter((image) => isRefusalCode(image.error?.code ?? "")).length;
  return {
    title:
      facts.name ?? (directory.split(/[\\/]/).findLast((part) => part !== "" && part !== ".") || "images"),
    directory,
    directoryFromRoot: fromRoot(directory),
    model: facts.model,
    makers: [
      ...models,
      // Some name the model in its version.
      ...[version, provider].filter(
        (name) => name !== null && !models.some((id) => id !== null && name.startsWith(id)),
      ),
    ] as string[],
    batches: runState.batches.flatMap(({ id, status }) =>
      id === null ? [] : [{ id, status: status ?? "unknown" }],
    ),
    startedAt: runState.created_at,
    endedAt: runState.finished_at ?? new Date(facts.nowMs).toISOString(),
    cost,
    paidNowMicroUsd: facts.paidNowMicroUsd ?? cost?.micros ?? 0,
    images,
    askedCount: facts.askedCount ?? images.length,
    hasOwnIds: lines.some(({ custom_id }) => input.get(custom_id)?.source?.id !== undefined),
    failedCount,
    refusedCount,
    versionCount: facts.versionCount ?? 0,
    retryCommand: failedCount === 0 ? null : retryCommand,
  };
}

function fileLineOf(source?: InputLine["source"]): ReportImage["fileLine"] {
  return source === undefined || source.file === "<stdin>" ? null : { file: source.file, line: source.line };
}

/** Lines of the prompt file that a list repeats know the values; other prompts repeat when their texts are equal. */
function variantOf(asked: AskedImage | undefined, prompt: string, model: string | null): Variant {
  const { source, aspect_ratio, size, quality, background, negative_prompt } = asked ?? { prompt };
  if (source?.values !== undefined)
    return { origin: `${source.file}:${source.line}`, values: new Map(Object.entries(source.values)) };
  return variantByPrompt(prompt, { model, aspect_ratio, size, quality, background, negative_prompt });
}

/** The seed that made the image says more than the one that was asked for. */
function optionTexts(asked: AskedImage | undefined, madeWith: number | undefined): string[] {
  if (asked === undefined) return [];
  const { aspect_ratio, size, quality, background, seed, negative_prompt } = asked;
  const named = {
    quality,
    background,
    ...(madeWith === undefined ? { seed } : {}),
    without: negative_prompt,
  };
  const texts = Object.entries(named).map(([name, value]) => (value == null ? null : `${name} ${value}`));
  return [aspect_ratio, size, ...texts].filter((text) => text != null).map(String);
}

const MOST_FIELDS = 20;
const MOST_FIELD_CHARS = 200;

function metadataTexts(metadata: AskedImage["metadata"]): ReportImage["metadata"] {
  const given = Object.entries(metadata ?? {}).filter(([, value]) => value !== null && value !== "");
  return given.slice(0, MOST_FIELDS).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return [name, text].map((each) => truncateCodePoints(each, MOST_FIELD_CHARS, "…")) as [string, string];
  });
}

/** Without what the head of the report, or the column, says already. */
function originOf({ provider, model_version, seed }: EndedImage, known: (string | null)[]): string[] {
  const isSaid = (fact: string) => known.some((each) => fact === each || fact.startsWith(`${each} (`));
  const facts = [provider, model_version].filter((fact) => fact != null && !isSaid(fact));
  return [...facts, ...(seed === undefined ? [] : [`seed ${seed}`])] as string[];
}

function costOf({ batches }: RunState): Cost | null {
  if (batches.length === 0) return null;
  return sumCosts(
    batches.map(({ actual_cost, status, play_money = false }) => {
      const isKnown = actual_cost !== null && status !== null && isTerminal(status);
      return { micros: isKnown ? numberToMicros(actual_cost) : null, isPlay: play_money };
    }),
  );
}

/** `images/a%20b.png`: a link from the directory of the run to one of its files. */
export function fileHref(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}

/** `1024 × 1024`, `PNG`, `1.4 MB`: what is known of a file. */
export function fileFacts({ width, height, mime_type, bytes }: ResultFile): string[] {
  const size = width === null || height === null ? [] : [`${width} × ${height}`];
  const type = mime_type.replace(/^image\//, "").toUpperCase();
  return [...size, type, formatSize(bytes).replace(" ", "\u00a0")];
}

/** `2031-05-06 07:08 UTC`. */
export function shortDate(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
