import type { RunCommand } from "../command.ts";
import { generateMany } from "../generate-many.ts";
import { generateOne } from "../generate-one.ts";
import { readGenerateOptions } from "../generate-options.ts";

/** `imgbatch generate`: images at once, each a request of its own. */
export const run: RunCommand = async (context) => {
  const options = await readGenerateOptions(context);
  const { prompt, file } = options;
  if (file !== null) return generateMany(context, options, file);
  return generateOne(context, options, prompt ?? "");
};
