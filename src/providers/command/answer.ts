import { z } from "zod";
import type { ItemErrorCode } from "../../contract/statuses.ts";
import {
  type GeneratedImages,
  ProviderError,
  type Trouble,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import { numberToMicros } from "../../kernel/money.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { AnswerImages } from "../upstream/answer-images.ts";
import { upstreamWords } from "../upstream/words.ts";
import { lastWords } from "./last-words.ts";
import { type Outputs, readFound, readNamed } from "./outputs.ts";
import type { ProgramEnd } from "./run-program.ts";

const MAX_MODEL = 200;

/** The meaning of each error that a program can report. */
const ERRORS: Record<string, { code: ItemErrorCode; trouble: Trouble | null }> = {
  refused: { code: "SAFETY_BLOCKED", trouble: null },
  invalid: { code: "INVALID_ARGUMENT", trouble: null },
  auth: { code: "PROVIDER_ITEM_FAILED", trouble: "credential" },
  rate_limited: { code: "PROVIDER_RATE_LIMITED", trouble: "limited" },
  unavailable: { code: "PROVIDER_ITEM_FAILED", trouble: "failing" },
  failed: { code: "PROVIDER_ITEM_FAILED", trouble: "failing" },
};

/** The exit codes of sysexits.h that have a meaning here. */
const EXIT_CODES: Record<number, keyof typeof ERRORS> = {
  64: "invalid", // EX_USAGE
  65: "invalid", // EX_DATAERR
  69: "unavailable", // EX_UNAVAILABLE
  75: "unavailable", // EX_TEMPFAIL
  77: "auth", // EX_NOPERM
};

const amount = z.number().min(0).max(1_000_000);
const imagesLine = z.object({
  images: z.array(z.object({ path: z.string().min(1) })),
  cost_usd: z.unknown().optional(),
  model: z.string().nullish().catch(null),
});
const errorLine = z.object({
  error: z.object({
    code: z.string().catch("failed"),
    message: z.string().catch(""),
    retry_after_ms: z.number().min(0).nullish().catch(null),
  }),
});

/**
 * Returns the images of a program that has ended. Its last line decides; without one, its exit code and the files in
 * `directory`. Throws `ProviderError` for a failure. `seed` is the one that the program was given.
 */
export async function readAnswer(
  end: ProgramEnd,
  program: string,
  directory: string,
  seed: number,
  read: AnswerImages,
): Promise<GeneratedImages> {
  const line = lastLine(end.stdout.text());
  const failure = errorLine.safeParse(line);
  if (failure.success) throw reported(failure.data.error);
  if (line !== null && Object.hasOwn(line, "images")) {
    const { data } = imagesLine.safeParse(line);
    if (data === undefined) throw unreadableLine();
    const { images, notes } = await readNamed(
      directory,
      data.images.map(({ path }) => path),
      read,
    );
    const { usage, note } = usageOf(data.cost_usd);
    const model = truncateCodePoints(upstreamWords(data.model ?? ""), MAX_MODEL);
    return { images, notes: [...notes, ...note], usage, seed, modelVersion: model || null };
  }
  if (end.exitCode !== 0) throw endedBadly(end, program);
  const outputs: Outputs = await readFound(directory, read);
  return { ...outputs, modelVersion: null, seed };
}

/** The last line that is not empty, if it is a JSON object. */
function lastLine(stdout: string): object | null {
  const text = stdout.trimEnd();
  try {
    const value: unknown = JSON.parse(text.slice(text.lastIndexOf("\n") + 1));
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function reported({ code, message, retry_after_ms }: z.infer<typeof errorLine>["error"]): ProviderError {
  const kind = (Object.hasOwn(ERRORS, code) ? ERRORS[code] : undefined) ?? ERRORS.failed;
  const words = upstreamWords(message) || `The program reports: ${upstreamWords(code)}.`;
  return new ProviderError(kind?.code ?? "PROVIDER_ITEM_FAILED", words, {
    trouble: kind?.trouble ?? null,
    retryAfterMs: retry_after_ms ?? null,
  });
}

function endedBadly({ exitCode, signal, stderr }: ProgramEnd, program: string): ProviderError {
  const how = exitCode === null ? `was ended by ${signal}` : `ended with exit code ${exitCode}`;
  const words = lastWords(stderr);
  const message = `${program} ${how}${words === "" ? "." : `: ${words}`}`;
  // A program that is killed cannot report whether the image was made.
  const trouble = exitCode === null ? "ambiguous" : "failing";
  const kind = ERRORS[EXIT_CODES[exitCode ?? -1] ?? ""] ?? { code: "PROVIDER_ITEM_FAILED", trouble };
  return new ProviderError(kind.code, message, { trouble: kind.trouble });
}

function unreadableLine(): ProviderError {
  const message =
    'The last line of the program cannot be read: "images" must be a list such as [{"path": "1.png"}].';
  return new ProviderError("PROVIDER_ITEM_FAILED", message, { trouble: "ambiguous" });
}

function usageOf(cost: unknown): { usage: UpstreamUsage | null; note: string[] } {
  if (cost === undefined || cost === null) return { usage: null, note: [] };
  const { data } = amount.safeParse(cost);
  if (data === undefined)
    return { usage: null, note: ["The cost_usd of the program is no amount and was not counted."] };
  return {
    usage: { inputTokens: null, outputTokens: null, costMicroUsd: numberToMicros(data) },
    note: [],
  };
}
