import { IMAGE_HEADS } from "../../contract/image-formats.ts";
import { JOB_DIRECTIVES, stuckMs } from "../../contract/job-directives.ts";
import { ITEM_ERROR_CODES, type ItemErrorCode } from "../../contract/statuses.ts";
import { type ImageRequest, type ItemProvider, ProviderError } from "../../domain/ports/image-provider.ts";
import { Decoding } from "../../imaging/decoding.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { joinTurns } from "../../kernel/text.ts";
import { hashSeed, Random } from "./random.ts";

/** What a prompt without directives asks for. */
const NONE = {
  /** Fail with this code. */
  fail: null as ItemErrorCode | null,
  /** Fail with this code, except in a batch that retries another. */
  failOnce: null as ItemErrorCode | null,
  /** Fail like an upstream that responds with this HTTP status. */
  status: null as number | null,
  delayMs: 0,
  /** The delay before the next try that a failure asks for. */
  retryAfterMs: null as number | null,
  refuse: false,
  badBytes: false,
  imageCount: 1,
};
type Directives = typeof NONE;

/** Reads the value of a directive. Throws a text that says what is wrong with it. */
type Reader = (value: string) => Partial<Directives>;

/** The directives with a value: an example of it, and how it is read. */
const VALUED: ReadonlyMap<string, readonly [example: string, read: Reader]> = new Map([
  ["fail", ["PROVIDER_ITEM_FAILED", (value) => ({ fail: errorCode(value) })]],
  ["fail-once", ["PROVIDER_TIMEOUT", (value) => ({ failOnce: errorCode(value) })]],
  ["status", ["503", (value) => ({ status: integer(value, 400, 599) })]],
  ["delay", ["2s", (value) => ({ delayMs: duration(value) })]],
  ["retry-after", ["1s", (value) => ({ retryAfterMs: duration(value) })]],
  ["images", ["2", (value) => ({ imageCount: integer(value, 0, MAX_IMAGES) })]],
  [
    "job-stuck",
    ["10m", (value) => (stuckMs(value) === null ? wrong("the time must be like 10m, at most 24h") : {})],
  ],
]);
const FLAGS: ReadonlyMap<string, Partial<Directives>> = new Map<string, Partial<Directives>>([
  ["empty", { imageCount: 0 }],
  ["refuse", { refuse: true }],
  ["bad-bytes", { badBytes: true }],
  // The directives for jobs have no effect on a picture.
  ...JOB_DIRECTIVES.map((name) => [name, {}] as const),
]);
/** The most images that one prompt can ask for. */
const MAX_IMAGES = 8;
const MAX_WAIT_MS = 24 * 60 * 60_000;
const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const DIRECTIVE = /\[\[(.*?)(\]\]|$)/gs;

/** Returns the earlier turns without their directives, which no longer have an effect. Malformed ones go, too. */
function withoutDirectives(earlier: string): string {
  return tidy(earlier.replaceAll(DIRECTIVE, " "), earlier);
}

function tidy(text: string, prompt: string): string {
  return text === prompt ? prompt : text.replaceAll(/[ \t]+/g, " ").trim();
}

/**
 * Splits a prompt into its directives and the text to draw. A directive is written `[[name]]` or `[[name:value]]`, anywhere
 * in the prompt. If one is repeated, the last counts. Throws a `ProviderError` with the code `INVALID_ARGUMENT` for a
 * directive that is unknown, malformed, or not closed.
 */
export function parseDirectives(prompt: string): { text: string; directives: Directives } {
  const directives = { ...NONE };
  const text = prompt.replaceAll(DIRECTIVE, (whole, inside: string, end: string) => {
    try {
      if (end === "") wrong("it is not closed by ]]");
      Object.assign(directives, readDirective(inside.trim()));
    } catch (error) {
      const shown = whole.length > 60 ? `${whole.slice(0, 59)}…` : whole;
      throw new ProviderError(
        "INVALID_ARGUMENT",
        `directive ${shown} in the prompt: ${(error as Error).message}`,
      );
    }
    return " ";
  });
  return { text: tidy(text, prompt), directives };
}

function readDirective(inside: string): Partial<Directives> {
  const [, name = "", value] = /^([^:]*?)\s*(?::\s*(.*))?$/s.exec(inside) ?? [];
  const [example, read] = VALUED.get(name) ?? [];
  if (read !== undefined)
    return value ? read(value) : wrong(`${name} needs a value, as in [[${name}:${example}]]`);
  const flag = FLAGS.get(name) ?? wrong(`there is no directive ${JSON.stringify(name)}`);
  return value === undefined ? flag : wrong(`${name} takes no value`);
}

function wrong(why: string): never {
  throw new Error(why);
}

function errorCode(value: string): ItemErrorCode {
  const code = ITEM_ERROR_CODES.find((known) => known === value);
  return code ?? wrong(`the code must be one of ${ITEM_ERROR_CODES.join(", ")}`);
}

function integer(value: string, low: number, high: number): number {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
  return number >= low && number <= high ? number : wrong(`the value must be from ${low} to ${high}`);
}

function duration(value: string): number {
  const [, amount, unit = ""] = /^(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h)$/.exec(value) ?? [];
  const ms = Math.round(Number(amount) * (UNIT_MS[unit] ?? Number.NaN));
  return ms <= MAX_WAIT_MS ? ms : wrong("the time must be like 500ms, 2s or 1m, and at most 24h");
}

/** Delays and failures for every request, to test how a program handles them. */
export interface Simulation {
  latencyMs: number;
  /** The share of requests that fail, 0 to 1. */
  fail: number;
  /** Decides, with the prompt, the output index and the origin, which requests fail. */
  seed: number;
}

/** Returns the failure that a directive or the simulation asks for, or null. */
function failureOf(
  directives: Directives,
  simulation: Simulation | undefined,
  request: ImageRequest,
  modelVersion: string,
): ProviderError | null {
  return (
    directedFailure(directives, request, modelVersion) ??
    (simulation && simulatedFailure(simulation, request)) ??
    null
  );
}

/** Returns the failure that a directive asks for, or null. The failure carries `modelVersion`, as an image would. */
function directedFailure(
  { refuse, status, retryAfterMs, fail, failOnce }: Directives,
  request: ImageRequest,
  modelVersion: string,
): ProviderError | null {
  if (refuse) {
    const message = "the prompt was refused, as its directive asks";
    return new ProviderError("SAFETY_BLOCKED", message, { modelVersion });
  }
  if (status !== null) {
    const code = statusCode(status);
    return new ProviderError(code, `answered HTTP ${status}, as the directive in the prompt asks`, {
      retryable: code === "PROVIDER_RATE_LIMITED" || code === "PROVIDER_TIMEOUT" || status >= 500,
      retryAfterMs,
      upstreamStatus: status,
    });
  }
  const code = fail ?? (request.origin === "batch" ? failOnce : null);
  if (code === null) return null;
  const message = `failed with ${code}, as the directive in the prompt asks`;
  return new ProviderError(code, message, { retryAfterMs, modelVersion });
}

function statusCode(status: number): ItemErrorCode {
  if (status === 429) return "PROVIDER_RATE_LIMITED";
  if (status === 408 || status === 504) return "PROVIDER_TIMEOUT";
  return status >= 500 ? "PROVIDER_ITEM_FAILED" : "INVALID_ARGUMENT";
}

/**
 * Returns the failure that the simulation draws for an item, or null. The same items fail at every try and in every run. A
 * batch that retries them draws again.
 */
function simulatedFailure(simulation: Simulation, request: ImageRequest): ProviderError | null {
  const { prompt, outputIndex, origin } = request;
  const random = new Random(hashSeed(simulation.seed, prompt, outputIndex, origin === "batch" ? 0 : 1));
  if (!random.chance(simulation.fail)) return null;
  return new ProviderError("PROVIDER_ITEM_FAILED", "a simulated failure", { retryable: false });
}

/** The version of the drawings. It changes whenever the same request gives other pixels. */
const DRAWING_VERSION = "3";

interface ProceduralOptions {
  /** The provider's name in the configuration. */
  name: string;
  concurrency: number;
  /** Whether the provider serves a model id. */
  models: (model: string) => boolean;
  clock: Clock;
  simulate?: Simulation;
  decoding?: Decoding;
}

/**
 * Creates a provider that draws pictures on this machine from the words of the prompt, without a model, a network or costs.
 * The same request gives the same bytes. Directives in the prompt make it wait, fail or misbehave on purpose.
 */
export function createProceduralProvider(options: ProceduralOptions): ItemProvider {
  const { clock, simulate, decoding = new Decoding() } = options;
  return {
    kind: "item",
    name: options.name,
    concurrency: options.concurrency,
    serves: options.models,
    async generate(request, signal) {
      signal.throwIfAborted();
      const earlier = joinTurns(instructionOf(request), request.earlier ?? "");
      const { text: newest, directives } = parseDirectives(request.prompt);
      const text = joinTurns(withoutDirectives(earlier), newest);
      const prompt = joinTurns(earlier, request.prompt);
      const modelVersion = `${request.model} (procedural/${DRAWING_VERSION})`;
      const waitMs = directives.delayMs + (simulate?.latencyMs ?? 0);
      if (waitMs > 0) await clock.sleep(waitMs, signal);
      signal.throwIfAborted();
      const failure = failureOf(directives, simulate, request, modelVersion);
      if (failure) throw failure;
      const images: Buffer[] = [];
      // Loaded with the first picture, together with the image library.
      const { drawPicture } = await import("./draw.ts");
      for (let image = 0; image < directives.imageCount; image++) {
        images.push(
          directives.badBytes
            ? badBytes(request.options.mimeType)
            : await drawPicture(
                { ...request, prompt, text, image, version: DRAWING_VERSION },
                signal,
                decoding,
              ),
        );
      }
      const { seed } = request.options;
      return seed === null ? { images, modelVersion } : { images, modelVersion, seed };
    },
    close: async () => {},
  };
}

/** The text of the native API's `systemInstruction`, which is drawn with the prompt. */
function instructionOf({ verbatim }: ImageRequest): string {
  const instruction = verbatim?.api === "native" ? verbatim.fields.systemInstruction : undefined;
  if (typeof instruction === "string") return instruction;
  const parts = fieldsOf(instruction)?.parts;
  const list = Array.isArray(parts) ? parts : [parts];
  return list
    .flatMap((part) => fieldsOf(part)?.text ?? [])
    .join("\n")
    .trim();
}

/** Returns bytes that begin like the image type but are no image. */
function badBytes(mimeType: ImageRequest["options"]["mimeType"]): Buffer {
  const head = IMAGE_HEADS[mimeType].map((byte) => byte ?? 0);
  return Buffer.concat([Buffer.from(head), Buffer.from("these bytes are not an image, on purpose")]);
}
