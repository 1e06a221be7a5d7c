import type { Config } from "../../config/schema.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readStorageEnvironment } from "../../environment.ts";

/**
 * Throws `INVALID_CONFIG` for a command that would start the embedded service while the configuration or the environment
 * names a shared database or a bucket: what the embedded service makes would not be in them.
 */
export function requireLocalStorage(config: Pick<Config, "storage"> | null): void {
  const { database = "sqlite", blobs = "files" } = config?.storage ?? {};
  const { databaseUrl } = readStorageEnvironment();
  if (database === "sqlite" && blobs === "files" && databaseUrl === undefined) return;
  const where = databaseUrl === undefined ? "storage of the configuration" : "IMGBATCH_DATABASE_URL";
  const message = `The embedded service keeps its data in the data directory, and ${where} names another place.`;
  const advice =
    "start `imgbatch serve` there, and set IMGBATCH_BASE_URL and IMGBATCH_API_KEY for this command";
  throw new ImgbatchError("INVALID_CONFIG", message, { advice });
}
