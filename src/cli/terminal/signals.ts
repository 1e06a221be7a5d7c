import { ImgbatchError } from "../../contract/errors.ts";
import { abandonedAdvice } from "../interruption/paid-requests.ts";
import type { Terminal } from "./terminal.ts";

const SIGNALS = { SIGINT: "INTERRUPTED", SIGTERM: "TERMINATED" } as const;

export interface SignalWatch {
  signal: AbortSignal;
  /** Aborts for another reason, such as a failed embedded service. */
  abort: (reason: Error) => void;
  /** Counts the requests that cost money and that the second signal would abandon. Default: none. */
  countPaid: (paid: () => number) => void;
  stop: () => void;
}

/**
 * Watches for signals. The first SIGINT or SIGTERM aborts with an `ImgbatchError`. The second one ends the process at
 * once, with the exit code that `fail` returns.
 */
export function watchSignals(
  terminal: Pick<Terminal, "signals" | "exit">,
  fail: (error: ImgbatchError) => number,
): SignalWatch {
  const controller = new AbortController();
  let isSignalled = false;
  let countPaid = () => 0;
  const onSignal = (name: keyof typeof SIGNALS) => {
    if (isSignalled) {
      const advice = abandonedAdvice(countPaid());
      terminal.exit(fail(new ImgbatchError(SIGNALS[name], undefined, { advice })));
    }
    isSignalled = true;
    controller.abort(new ImgbatchError(SIGNALS[name]));
  };
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  for (const name of names) terminal.signals.on(name, onSignal);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    countPaid: (paid) => {
      countPaid = paid;
    },
    stop: () => {
      for (const name of names) terminal.signals.off(name, onSignal);
    },
  };
}
