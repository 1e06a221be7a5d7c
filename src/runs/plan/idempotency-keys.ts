import { randomBytes } from "node:crypto";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import { isLacking, submittedBatches } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import type { Plan } from "./plan.ts";

export interface KeyChoice {
  /** The caller's own key. With several batches, each gets a suffix. */
  explicit: string | null;
  /** Pay again for the same content. */
  isNew: boolean;
}

/**
 * Chooses the idempotency key of each batch: derived from the content unless the caller chooses otherwise. An unfinished
 * run in the same directory keeps its keys, fresh ones too: after a crash the same command must find its batches.
 */
export function chooseKeys(
  plan: Plan,
  choice: KeyChoice,
  runState: RunState | null,
): { keys: string[]; isFresh: boolean } {
  if (choice.explicit !== null)
    return { keys: explicitKeys(choice.explicit, plan.chunks.length), isFresh: false };
  const known = runState === null ? [] : submittedBatches(runState).map((batch) => batch.idempotency_key);
  const isWhole =
    runState !== null && known.length === plan.chunks.length && known.every((key) => key !== null);
  const isOpen =
    runState?.is_fresh === true &&
    (runState.finished_at === null || isLacking(runState)) &&
    !runState.batches.some((batch) => batch.status === "output_deleted");
  const goesOn = isWhole && (!choice.isNew || isOpen);
  if (goesOn) return { keys: known.filter((key) => key !== null), isFresh: runState.is_fresh };
  if (!choice.isNew) return { keys: plan.chunks.map((chunk) => chunk.contentKey), isFresh: false };
  const run = randomBytes(16).toString("hex");
  return { keys: plan.chunks.map((chunk) => `ib1-new-${run}-${chunk.index + 1}`), isFresh: true };
}

function explicitKeys(key: string, count: number): string[] {
  // An API key would be written into the run directory, and sent in another header than its own.
  if (holdsApiKey(key)) throw new ImgbatchError("USAGE", "--idempotency-key: this is an API key.");
  const keys = count === 1 ? [key] : Array.from({ length: count }, (_, i) => `${key}-${i + 1}`);
  const max = FIXED_LIMITS.idempotencyKeyChars;
  if (keys.every((each) => /^[\x20-\x7e]+$/.test(each) && each.length <= max && each.trim() === each))
    return keys;
  throw new ImgbatchError("USAGE", `--idempotency-key: use 1 to ${max} printable ASCII characters.`);
}
