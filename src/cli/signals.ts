import { ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import type { Terminal } from "./terminal.ts";

const SIGNALS = { SIGINT: "INTERRUPTED", SIGTERM: "TERMINATED" } as const;

/** The first SIGINT or SIGTERM aborts with an `ImgbatchError`; the second one ends the process at once. */
export function watchSignals(terminal: Pick<Terminal, "signals" | "exit">): {
  signal: AbortSignal;
  /** Aborts for another reason: what the command rests on is gone. */
  abort: (reason: Error) => void;
  stop: () => void;
} {
  const controller = new AbortController();
  let isSignalled = false;
  const onSignal = (name: keyof typeof SIGNALS) => {
    if (isSignalled) {
      terminal.exit(EXIT_CODES[name === "SIGINT" ? "interrupted" : "terminated"].code);
    }
    isSignalled = true;
    controller.abort(new ImgbatchError(SIGNALS[name]));
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
