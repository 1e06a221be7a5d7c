/** The API that a batch was made with: the batch API, or the batch jobs of the native API or of OpenAI's. */
export const BATCH_SOURCES = ["batch", "native", "openai"] as const;
export type BatchSource = (typeof BATCH_SOURCES)[number];

/** The statuses of a batch, in the order of its life. The last four are terminal. */
export const BATCH_STATUSES = [
  "queued",
  "running",
  "processing_results",
  "settling",
  "completed",
  "failed",
  "cancelled",
  "output_deleted",
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

/** A batch in one of these statuses does no more work: pollers stop here. */
const TERMINAL_BATCH_STATUSES: readonly BatchStatus[] = [
  "completed",
  "failed",
  "cancelled",
  "output_deleted",
];

export const UNFINISHED_BATCH_STATUSES = BATCH_STATUSES.filter((status) => !isTerminal(status));

/** Items are made only for a batch in one of these statuses. */
export const MAKING_BATCH_STATUSES: readonly BatchStatus[] = ["queued", "running"];

/** Whether a status is terminal; false for an unknown one, such as another service's. */
export function isTerminal(status: string): boolean {
  return TERMINAL_BATCH_STATUSES.some((each) => each === status);
}

export const ITEM_STATUSES = ["pending", "success", "failed"] as const;
export type ItemStatus = (typeof ITEM_STATUSES)[number];

/** Finish reasons that refuse the content of a request: sent again unchanged, it fails again. */
export const REFUSING_FINISH_REASONS = [
  "SAFETY",
  "IMAGE_SAFETY",
  "PROHIBITED_CONTENT",
  "IMAGE_PROHIBITED_CONTENT",
  "RECITATION",
  "IMAGE_RECITATION",
  "BLOCKLIST",
  "SPII",
  "LANGUAGE",
] as const;

/** Why an item has no image: the codes that `error.code` of an item can hold. */
export const ITEM_ERROR_CODES = [
  "PROVIDER_ITEM_FAILED",
  "SAFETY_BLOCKED",
  "INVALID_ARGUMENT",
  "PROVIDER_RATE_LIMITED",
  "PROVIDER_TIMEOUT",
  "EMPTY_IMAGE_OUTPUT",
  "INVALID_IMAGE_OUTPUT",
  "RESULT_MISSING",
  "OUTCOME_UNKNOWN",
  "CANCELLED",
] as const;
export type ItemErrorCode = (typeof ITEM_ERROR_CODES)[number];

export interface ItemError {
  code: ItemErrorCode;
  message: string;
  source: "provider" | "service";
  /** The upstream's own words, for the owner of the service alone; see `ProviderError`. */
  said?: string | null;
}

const OWN_REFUSALS: readonly ItemErrorCode[] = ["SAFETY_BLOCKED", "INVALID_ARGUMENT"];
/** The codes of other services for a prompt or an image that breaks their rules. */
const FOREIGN_REFUSALS: readonly string[] = [
  ...REFUSING_FINISH_REASONS,
  "SAFETY_VIOLATION",
  "SAFETY_FILTERED",
  "RAI_FILTERED",
  "RESPONSIBLE_AI_POLICY_VIOLATION",
  "POLICY_VIOLATION",
  "CONTENT_POLICY",
  "CONTENT_POLICY_VIOLATION",
  "CONTENT_POLICY_BLOCKED",
  "CONTENT_FILTER",
  "CONTENT_FILTERED",
  "CONTENT_BLOCKED",
  "CONTENT_MODERATION",
  "MODERATION_BLOCKED",
  "SENSITIVE_CONTENT",
  "UNSAFE_CONTENT",
  "NSFW",
  "NSFW_CONTENT",
  "PROMPT_BLOCKED",
  "MODEL_ARMOR",
  "JAILBREAK",
];

/** Some write `CONTENT_FILTER`, others `content-filter` or `ContentFilter`. */
function bare(code: string): string {
  return code.replace(/[^A-Za-z0-9]+/g, "").toUpperCase();
}

const REFUSALS: ReadonlySet<string> = new Set([...OWN_REFUSALS, ...FOREIGN_REFUSALS].map(bare));

/** Whether an item failed because of its content, by the code of any service: sent unchanged, it would fail again. */
export function isRefusalCode(code: string): boolean {
  return REFUSALS.has(bare(code));
}

type Maybe<T> = T | null | undefined;

/** The fields of a native answer that may say why it has no image. */
interface ImagelessAnswer {
  promptFeedback?: Maybe<{ blockReason?: Maybe<string>; blockReasonMessage?: Maybe<string> }>;
  candidates?: Maybe<
    readonly {
      finishReason?: Maybe<string>;
      finishMessage?: Maybe<string>;
      content?: Maybe<{ parts?: Maybe<readonly { text?: Maybe<string>; thought?: Maybe<boolean> }[]> }>;
    }[]
  >;
}

const SHOWN_LINES = 2;

/**
 * Returns why an answer has no image. `refused`: what the upstream does not want to do, null if it refuses nothing. `words`: what it
 * says to that, at most two lines; empty for none.
 */
export function whyNoImage({ promptFeedback, candidates }: ImagelessAnswer): {
  refused: "prompt" | "image" | null;
  reason: string;
  words: string;
} {
  const { blockReason, blockReasonMessage } = promptFeedback ?? {};
  if (blockReason)
    return { refused: "prompt", reason: blockReason, words: firstLines(blockReasonMessage ?? "") };
  const candidate = candidates?.find((each) => each.finishReason) ?? candidates?.[0];
  if (candidate === undefined) return { refused: null, reason: "the answer has no candidates", words: "" };
  const { finishReason, finishMessage, content } = candidate;
  const reason = finishReason ?? "no finish reason";
  const said = (content?.parts ?? []).flatMap(({ text, thought }) => (thought ? [] : (text ?? [])));
  const isRefused = REFUSING_FINISH_REASONS.some((refusing) => refusing === reason);
  return { refused: isRefused ? "image" : null, reason, words: firstLines(finishMessage || said.join("\n")) };
}

function firstLines(text: string): string {
  const lines = text.split(/[\r\n]+/).map((line) => line.trim());
  return lines
    .filter((line) => line !== "")
    .slice(0, SHOWN_LINES)
    .join(" | ");
}
