import type { Role } from "../../config/roles.ts";
import type { Config } from "../../config/schema.ts";
import { type StoragePlaces, storagePlaces } from "../../config/storage-places.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readStorageEnvironment } from "../../environment.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { textOption } from "../command-line/option-values.ts";

/**
 * Returns where the data of a service is, by `--database` and `--blobs`, the environment and the configuration. Throws
 * `INVALID_CONFIG` for a place that cannot be used.
 */
export function storageOf(
  { options }: Pick<CommandContext, "options">,
  config: Pick<Config, "storage"> | null,
): StoragePlaces {
  const flags = { database: textOption(options, "database"), blobs: textOption(options, "blobs") };
  return storagePlaces(config?.storage, flags, readStorageEnvironment());
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
