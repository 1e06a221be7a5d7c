import type { RunCommand } from "../../../command-line/command-context.ts";
import { setDisabled } from "./set-disabled.ts";

/** `imgbatch admin keys disable`: the key is refused from its next request on. */
export const run: RunCommand = (context) => setDisabled(context, true);
