import { ImgbatchError } from "../../contract/errors.ts";
import type { Terminal } from "./terminal.ts";

const SIGNALS = { SIGINT: "INTERRUPTED", SIGTERM: "TERMINATED" } as const;

export interface SignalWatch {
  signal: AbortSignal;
  /** Aborts for another reason, such as a failed embedded service. */
  abort: (reason: Error) => void;
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
  const onSignal = (name: keyof typeof SIGNALS) => {
    const error = new ImgbatchError(SIGNALS[name]);
    if (isSignalled) terminal.exit(fail(error));
    isSignalled = true;
    controller.abort(error);
  };
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  for (const name of names) terminal.signals.on(name, onSignal);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    stop: () => {
      for (const name of names) terminal.signals.off(name, onSignal);
    },
  };
}
