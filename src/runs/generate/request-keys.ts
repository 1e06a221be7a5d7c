import { randomBytes } from "node:crypto";
import type { ErrorCode } from "../../contract/errors.ts";
import type { RunState } from "../directory/run-state-schema.ts";

/** The service has ended the request: with the same key it would give this answer again. */
export const ENDED: readonly ErrorCode[] = [
  "IMAGE_REFUSED",
  "NO_IMAGES",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_TIMEOUT",
  "REALTIME_IDEMPOTENCY_CONFLICT",
];

type Keys = Pick<RunState, "request_keys">;

/** Gives the run what its keys are made of, unless it has that already. It must be on disk before a request leaves. */
export function beginRequestKeys(runState: Keys): void {
  runState.request_keys ??= { seed: randomBytes(16).toString("hex"), renewed: {} };
}

/**
 * Returns the idempotency key of the image at this position of the plan. The same run continues with the same keys, so that
 * an image whose answer was lost is not billed again.
 */
export function requestKeyOf({ request_keys }: Keys, customId: string, position: number): string {
  if (request_keys === undefined) throw new Error("the run has no keys");
  const { seed, renewed } = request_keys;
  return `ib1-run-${seed}-${position + 1}-${renewed[customId] ?? 0}`;
}

/** Makes the next request for an image a new one. */
export function renewRequestKey({ request_keys }: Keys, customId: string): void {
  if (request_keys === undefined) return;
  request_keys.renewed[customId] = (request_keys.renewed[customId] ?? 0) + 1;
}
