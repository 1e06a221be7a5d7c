import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { CONFIG_FILE, type ConfigChoice, NO_CONFIG_FILE } from "./paths.ts";
import type { Config } from "./schema.ts";

/**
 * Reads the configuration like `loadConfig`; null when it has nothing but defaults. Most commands need none of these, and
 * making them takes longer than the work of a short command.
 */
export async function loadUnlessDefault(choice: ConfigChoice): Promise<Config | null> {
  const { file, cwd, upstream = null, vendor = null, replay = null, concurrency } = choice;
  const hasFile = file === undefined ? existsSync(resolve(cwd, CONFIG_FILE)) : file !== NO_CONFIG_FILE;
  const isDefault = upstream === null && vendor === null && replay === null && concurrency === undefined;
  if (!hasFile && isDefault) return null;
  const { loadConfig } = await import("./load.ts");
  return loadConfig(choice);
}
