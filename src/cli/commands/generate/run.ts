import { ImgbatchError } from "../../../contract/errors.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { positiveDurationOption } from "../../command-line/option-values.ts";
import { timeLimit } from "../../interruption/time-limit.ts";
import { generateMany } from "./many.ts";
import { generateOne } from "./one.ts";
import { readGenerateOptions } from "./options.ts";

/** `imgbatch generate`: makes images in real time, one request for each. */
export const run: RunCommand = async (context) => {
  const limit = timeLimit(context, positiveDurationOption(context.options, "timeout"));
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

/**
 * Once a request was sent, it may be billed: `generateOne` and `generateMany` then replace the reason of a stop. The
 * plain reason therefore means that nothing was sent.
 */
function explainEarly(error: unknown, { reason }: AbortSignal): unknown {
  const isEarly = error === reason && error instanceof ImgbatchError && error.code === "TIMEOUT";
  return isEarly ? new ImgbatchError("TIMEOUT", `${error.message} No image was requested yet.`) : error;
}
