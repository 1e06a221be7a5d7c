import { ImgbatchError } from "../../../contract/errors.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { positiveDurationOption } from "../../command-line/option-values.ts";
import { timeLimit } from "../../interruption/time-limit.ts";
import { generateMany } from "./many.ts";
import { generateOne } from "./one.ts";
import { readGenerateOptions } from "./options.ts";

/** `imgbatch generate`: images at once, each a request of its own. */
export const run: RunCommand = async (context) => {
  const limit = timeLimit(context.signal, positiveDurationOption(context.options, "timeout", "--timeout"));
  const { signal } = limit;
  const limited = { ...context, signal, readStdin: () => context.readStdin(signal) };
  try {
    const options = await readGenerateOptions(limited);
    const { prompt, file } = options;
    if (file !== null) return await generateMany(limited, options, file);
    return await generateOne(limited, options, prompt ?? "");
  } catch (error) {
    throw explainEarly(error, signal);
  } finally {
    limit.stop();
  }
};

/** Once a request was sent, an error of its own replaces the signal's reason: the bare reason means that none was. */
function explainEarly(error: unknown, signal: AbortSignal): unknown {
  const isEarly = error instanceof ImgbatchError && error.code === "TIMEOUT" && error === signal.reason;
  return isEarly ? new ImgbatchError("TIMEOUT", "Time is up; no image was asked for yet.") : error;
}
