import { errorEntry, ImgbatchError } from "../../../contract/errors.ts";
import { routes } from "../../../contract/routes.ts";
import { send } from "../../../http/transport.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import type { FoundService } from "../../service/locate-service.ts";
import { probeService } from "../../service/probe-service.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

const TIMEOUT_MS = 5000;
/** A larger difference may break signatures and certificates. */
const MAX_SKEW_MS = 30_000;

/**
 * Checks whether the service responds, is ready, accepts the key, and has the same time. Makes no image, costs nothing.
 */
export async function checkService(
  service: FoundService,
  signal: AbortSignal,
  nowMs: () => number = Date.now,
): Promise<Finding[]> {
  const { baseUrl } = service;
  const clock = await checkClock(baseUrl, signal, nowMs);
  if (clock === null) {
    const advice = "check the address, the network, a proxy and whether the service runs";
    return [fail("service", "temporary", `${baseUrl} does not answer`, advice)];
  }
  try {
    const { problems } = await probeService(service, signal);
    if (problems.length === 0)
      return [ok("service", `${baseUrl} is ready`), ok("key", "is accepted"), ...clock];
    const message = `${baseUrl} is not ready: ${problems.join("; ")}`;
    return [fail("service", "temporary", message, "wait, or ask the operator"), ...clock];
  } catch (error) {
    return [...fromError(error, baseUrl), ...clock];
  }
}

function fromError(error: unknown, baseUrl: string): Finding[] {
  if (!(error instanceof ImgbatchError)) throw error;
  const { exit } = errorEntry(error.code);
  if (exit !== "auth") {
    const message = `${baseUrl} answers, but not like an image service: ${error.message}`;
    return [fail("service", "temporary", message, error.advice ?? "check the address")];
  }
  const advice = "check IMGBATCH_API_KEY (or --api-key-file), and that the key belongs to this service";
  return [ok("service", `${baseUrl} answers`), fail("key", "auth", error.message, advice)];
}

/** Compares the clocks. Null if the service does not respond. */
async function checkClock(
  baseUrl: string,
  signal: AbortSignal,
  nowMs: () => number,
): Promise<Finding[] | null> {
  const before = nowMs();
  try {
    const answer = await send(baseUrl + routes.health, { signal, silenceMs: TIMEOUT_MS });
    answer.cancel();
    const theirs = Date.parse(answer.headers.get("date") ?? "");
    if (Number.isNaN(theirs)) return [];
    const skewMs = (before + nowMs()) / 2 - theirs;
    if (Math.abs(skewMs) <= MAX_SKEW_MS) return [ok("clock", "agrees with the service's")];
    const direction = skewMs > 0 ? "ahead of" : "behind";
    const message = `this clock is ${formatDuration(Math.abs(skewMs))} ${direction} the service's`;
    return [warn("clock", message, "set this machine's clock, by NTP for instance")];
  } catch {
    signal.throwIfAborted();
    return null;
  }
}
