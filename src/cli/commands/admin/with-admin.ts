import { loadUnlessDefault } from "../../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../../config/paths.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { readEnvironment } from "../../../environment.ts";
import { type Admin, openAdmin } from "../../../service/admin.ts";
import type { CommandContext, CommandResult } from "../../command-line/command-context.ts";
import { configChoice } from "../../service/config-choice.ts";
import { requireShared, storageOf } from "../../service/storage-of.ts";

/**
 * Opens the data directory or the shared database of a command while the work lasts. Creates a missing directory only with
 * `mayCreate`; with `readsImages`, refuses a shared database without the bucket of its images. `place` is the directory, or the URL of the database without secrets.
 */
export async function withAdmin(
  context: CommandContext,
  { readsImages = false, ...needs }: { mayCreate: boolean; readsImages?: boolean },
  work: (admin: Admin, place: string) => Promise<CommandResult> | CommandResult,
): Promise<CommandResult> {
  const { global, cwd, output } = context;
  const config = await loadUnlessDefault(configChoice(context));
  const storage = storageOf(context, config);
  if (readsImages) requireShared("all", storage);
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const { database } = storage;
  const place = database.kind === "postgres" ? database.name : directory;
  output.detail(database.kind === "postgres" ? `database: ${place}` : `data directory: ${place}`);
  const admin = await openAdmin({ directory, storage, ...needs });
  try {
    if (admin.isNew) output.note(`created the data directory: ${directory}`);
    return await work(admin, place);
  } finally {
    await admin.close();
  }
}

/** The result of a command that succeeded. */
export function done(json: unknown, lines: readonly string[]): CommandResult {
  return { exitCode: EXIT_CODES.ok.code, json, lines };
}
