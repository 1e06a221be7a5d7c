import type { ProviderError } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";

/** The engine would make an error with a stack for each call that ends in time. */
const IN_TIME = "in time";

/**
 * Runs a call with a signal that also aborts when its time is over. Rejects with the reason of `signal` when that is
 * aborted, with `late()` when the time is over, else with the error of the call.
 */
export async function withTimeLimit<T>(
  { clock, ms, late }: { clock: Clock; ms: number; late: () => ProviderError },
  signal: AbortSignal,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const done = new AbortController();
  clock.sleep(ms, done.signal).then(
    () => over.abort(late()),
    () => {},
  );
  const linked = linkSignals(signal, over.signal);
  try {
    return await call(linked.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    done.abort(IN_TIME);
    linked.unlink();
  }
}
