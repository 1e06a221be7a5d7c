import { dataDirectoryOf, readEnvironment } from "../../../config.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { checkDataDirectory } from "../../../data.ts";
import type { CommandContext, CommandResult } from "../../command.ts";

/** `imgbatch admin check`: verifies every invariant of a data directory, also while a service runs on it. */
export async function run({ global, cwd }: CommandContext): Promise<CommandResult> {
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const { accounts, batches, images, problems } = await checkDataDirectory(directory);
  const summary = `${accounts} accounts, ${batches} batches, ${images} images`;
  const isFine = problems.length === 0;
  return {
    exitCode: isFine ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
    json: { data: directory, accounts, batches, images, problems },
    lines: isFine ? [`ok: ${summary}`] : [...problems, `${problems.length} problems in ${summary}`],
  };
}
