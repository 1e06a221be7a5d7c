import { dataDirectoryOf } from "../../../config/places.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { readEnvironment } from "../../../environment.ts";
import { type Admin, openAdmin } from "../../../service/admin.ts";
import type { CommandContext, CommandResult } from "../../command-line/command-context.ts";

/** Opens the data directory of a command while the work lasts. Creates a missing one only with `mayCreate`. */
export async function withAdmin(
  context: CommandContext,
  needs: { mayCreate: boolean },
  work: (admin: Admin, directory: string) => Promise<CommandResult> | CommandResult,
): Promise<CommandResult> {
  const directory = dataDirectoryOf(context.global.data, readEnvironment(), context.cwd);
  context.output.detail(`data directory: ${directory}`);
  const admin = await openAdmin({ directory, ...needs });
  try {
    if (admin.isNew) context.output.note(`created the data directory: ${directory}`);
    return await work(admin, directory);
  } finally {
    await admin.close();
  }
}

/** The result of a command that succeeded. */
export function done(json: unknown, lines: readonly string[]): CommandResult {
  return { exitCode: EXIT_CODES.ok.code, json, lines };
}
