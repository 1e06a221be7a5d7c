import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { type Admin, openAdmin } from "../../service/admin.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import { configChoice, requireShared, storageOf } from "../connect/service-config.ts";

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

/** Returns the error for a wrong argument. Its message names the argument, the typed text and a right value. */
export function wrongArgument(argument: string, text: string, advice: string): ImgbatchError {
  const message = `${argument} ${JSON.stringify(text)}: ${advice}.`;
  return new ImgbatchError("USAGE", message, { param: argument });
}

/**
 * Returns ` (+25%)` if what an upstream reports is that much more than what was billed, or less: from a tenth on. Empty if
 * it is less than that, and if the upstream reports nothing.
 */
export function costDifference(billedMicroUsd: number, costMicroUsd: number): string {
  const more = costMicroUsd - billedMicroUsd;
  if (costMicroUsd === 0 || Math.abs(more) * 10 <= billedMicroUsd) return "";
  if (billedMicroUsd === 0) return " (not billed)";
  return ` (${more > 0 ? "+" : "-"}${Math.round((Math.abs(more) / billedMicroUsd) * 100)}%)`;
}

/** Formats a time as `2030-01-31T18:00:00Z`, for people and for `--expires`. */
export function formatMoment(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
}
