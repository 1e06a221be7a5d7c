import { formatDuration, momentText } from "../kernel/durations.ts";

/** Whoever asks for a longer pause than this, in ms, is in error or means harm. */
export const LONGEST_PAUSE_MS = 24 * 3_600_000;

/**
 * Why a batch does not go on now: the codes of `waiting`, and the exit of a command that does not wait any longer. `STOPPED`:
 * nobody works on it until somebody names it. `CANCELLING`: what has left for a paid upstream is awaited.
 */
export const WAITING_CODES = {
  STOPPED: "temporary",
  CANCELLING: "temporary",
  NO_WORKERS: "temporary",
  PROVIDER_NOT_CONFIGURED: "temporary",
  PROVIDER_CREDENTIAL: "auth",
  PROVIDER_FORBIDDEN: "auth",
  PROVIDER_BILLING: "money",
  PROVIDER_MODEL_MISSING: "temporary",
  PROVIDER_RATE_LIMITED: "temporary",
  PROVIDER_UNREACHABLE: "temporary",
  PROVIDER_FAILING: "temporary",
} as const;

export type WaitingCode = keyof typeof WAITING_CODES;

/** Why the items of a batch cannot be made now. */
export interface Waiting {
  code: WaitingCode;
  message: string;
  /** When the next try may be made; null when only a change of the configuration helps. */
  untilMs: number | null;
  /** The upstream's own words, at most two lines, for the owner of the service alone. Left out or null: it said nothing. */
  said?: string | null;
}

export function isWaitingCode(code: string): code is WaitingCode {
  return Object.hasOwn(WAITING_CODES, code);
}

/** Returns a message without the name of its provider, with which messages about HTTP upstreams begin. */
export function unnamed(provider: string, message: string): string {
  return [`${provider}: `, `${provider} `].reduce(
    (rest, name) => (rest.startsWith(name) ? rest.slice(name.length) : rest),
    message,
  );
}

/** Returns a message that names its provider once: `google: takes no more requests for now (HTTP 429).` */
export function named(provider: string, message: string): string {
  return `${provider}: ${unnamed(provider, message)}`;
}

/** Why a provider is in its state: `the last 3 requests failed: could not be reached (ENOTFOUND)`. Empty when it is well. */
export function reasonText(provider: string, reason: string | null, failedRequests: number): string {
  const why = unnamed(provider, reason ?? "").replace(/\.$/, "");
  if (failedRequests === 0) return why;
  const last = failedRequests === 1 ? "the last request" : `the last ${failedRequests} requests`;
  return why.startsWith("failed") ? `${last} ${why}` : `${last} failed: ${why}`;
}

/** Returns a message with the upstream's own words behind it. */
export function withUpstreamWords(message: string, said: string | null | undefined): string {
  return said ? `${message.replace(/\.$/, "")}: ${said.replaceAll("\n", " ")}` : message;
}

/** The lines that tell the owner what the upstream said; none when it said nothing. */
export function saidLines(said: string | null | undefined): string[] {
  return said
    ? said.split("\n").map((line, at) => (at === 0 ? `the upstream says: ${line}` : `  ${line}`))
    : [];
}

/** Describes a waiting: `waiting for google: too many requests; next try at 14:32:10`. */
export function waitingText(
  waiting: { code: string; message: string; untilMs: number | null },
  nowMs = Date.now(),
): string {
  const { code, message, untilMs } = waiting;
  const reason = message.replace(/\.$/, "");
  if (code === "STOPPED") return `stopped; ${reason}`;
  if (code === "CANCELLING") return `being cancelled; ${reason}`;
  const isNamed = isWaitingCode(code) && code !== "NO_WORKERS" && code !== "PROVIDER_NOT_CONFIGURED";
  return `waiting${isNamed ? " for" : ":"} ${reason}${untilMs === null ? "" : `; next try at ${momentText(untilMs, nowMs)}`}`;
}

/** A job at an upstream, as the batch API, the live view and `status` show it. */
export interface ShownJob {
  /** Our id of it, which the upstream keeps. */
  id: string;
  /** The upstream's own name; null while none is known. */
  name: string | null;
  /** The step that it is at, or the upstream's own word for its state. */
  state: string;
  /** The last words of the upstream about it; null before. */
  said: string | null;
  createdAtMs: number;
}

/** Describes the jobs of a batch: `upstream job RUNNING for 12 min`, `3 upstream jobs, the oldest PENDING for 2 h`. */
export function jobsText(
  jobs: readonly Pick<ShownJob, "state" | "createdAtMs">[],
  nowMs: number,
): string | null {
  const [oldest] = [...jobs].sort((a, b) => a.createdAtMs - b.createdAtMs);
  if (!oldest) return null;
  const state = `${oldest.state} for ${formatDuration(nowMs - oldest.createdAtMs)}`;
  return jobs.length === 1 ? `upstream job ${state}` : `${jobs.length} upstream jobs, the oldest ${state}`;
}
