import type { Role } from "../../config/roles.ts";
import type { Config } from "../../config/schema.ts";
import { type StoragePlaces, storagePlaces } from "../../config/storage-places.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readStorageEnvironment } from "../../environment.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { textOption } from "../command-line/option-values.ts";

/**
 * Returns where the data of a service is, by `--database` and `--blobs`, the environment and the configuration. Throws
 * `INVALID_CONFIG` for a place that cannot be used, and `API_KEY_REQUIRED` if a secret would go to an address that only the
 * configuration file of the working directory names: a stranger may have written that file.
 */
export function storageOf(
  { global, options }: Pick<CommandContext, "global" | "options">,
  config: Pick<Config, "storage"> | null,
): StoragePlaces {
  const flags = { database: textOption(options, "database"), blobs: textOption(options, "blobs") };
  const environment = readStorageEnvironment();
  const places = storagePlaces(config?.storage, flags, environment);
  if (config === null || global.config !== undefined) return places;
  const { database, blobs } = places;
  const { databaseUrl, databasePassword } = environment;
  const isOfFile = flags.database === undefined && databaseUrl === undefined;
  if (database.kind === "postgres" && isOfFile && databasePassword !== undefined)
    requireLoopback(database.url, database.name);
  if (blobs.kind === "s3" && blobs.endpoint !== undefined) requireLoopback(blobs.endpoint, blobs.endpoint);
  return places;
}

function requireLoopback(url: string, name: string): void {
  const { hostname } = new URL(url);
  if (hostname === "" || isLoopback(hostname)) return;
  const message = `No secret is sent to ${name}: only the imgbatch.config.json of this directory names it.`;
  const advice = "if you know this address, name the file: --config imgbatch.config.json";
  throw new ImgbatchError("API_KEY_REQUIRED", message, { advice });
}

/**
 * Throws `INVALID_CONFIG` for a service whose data others could not use: a role that shares its work needs a database and
 * a bucket, and a database on another machine needs a bucket, too.
 */
export function requireShared(role: Role, { database, blobs }: StoragePlaces): void {
  const isShared = database.kind === "postgres";
  if (blobs.kind === "s3" ? role === "all" || isShared : role === "all" && !isShared) return;
  const missing = [
    ...(isShared ? [] : ["--database postgres://host/database"]),
    ...(blobs.kind === "s3" ? [] : ["--blobs s3://bucket/prefix"]),
  ];
  const message =
    role === "all"
      ? "Images in files are seen by one machine alone, and the database is for many."
      : `--role ${role} shares its work with other processes, and the data directory belongs to one.`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice: `add ${missing.join(" ")}` });
}
