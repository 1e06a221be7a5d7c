import { ImgbatchError } from "../contract/errors.ts";
import type { Terminal } from "./terminal.ts";

const SIGNALS = { SIGINT: "INTERRUPTED", SIGTERM: "TERMINATED" } as const;

/**
 * The first SIGINT or SIGTERM aborts with an `ImgbatchError`; the second one ends the process at once, with the exit
 * code that `fail` answers.
 * Rule: CLI-11.
 */
export function watchSignals(
  terminal: Pick<Terminal, "signals" | "exit">,
  fail: (error: ImgbatchError) => number,
): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController();
  const onSignal = (name: keyof typeof SIGNALS) => {
    const error = new ImgbatchError(SIGNALS[name]);
    if (controller.signal.aborted) terminal.exit(fail(error));
    controller.abort(error);
  };
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  for (const name of names) terminal.signals.on(name, onSignal);
  return {
    signal: controller.signal,
    stop: () => {
      for (const name of names) terminal.signals.off(name, onSignal);
    },
  };
}
