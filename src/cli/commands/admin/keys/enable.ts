import type { RunCommand } from "../../../command-line/command-context.ts";
import { setDisabled } from "./set-disabled.ts";

/** `imgbatch admin keys enable`: a disabled key is accepted again. */
export const run: RunCommand = (context) => setDisabled(context, false);
