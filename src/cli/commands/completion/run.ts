import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { GLOBAL_OPTIONS, JSON_OPTION } from "../../command-line/global-options.ts";
import { bashCompletion } from "./bash.ts";
import { completedCommands } from "./completed-commands.ts";
import { fishCompletion } from "./fish.ts";
import { zshCompletion } from "./zsh.ts";

const SHELLS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion };

/** `imgbatch completion`: prints the completion script of a shell for the commands of this table. */
export function completionOf(table: readonly CommandSpec[]): RunCommand {
  return async ({ arguments: [name = ""] }) => {
    if (!Object.hasOwn(SHELLS, name))
      throw new ImgbatchError("USAGE", `${JSON.stringify(name)}: use ${Object.keys(SHELLS).join(", ")}.`);
    const write = SHELLS[name as keyof typeof SHELLS];
    const text = write(completedCommands(table, GLOBAL_OPTIONS, JSON_OPTION));
    return { exitCode: EXIT_CODES.ok.code, json: null, lines: text.trimEnd().split("\n") };
  };
}
