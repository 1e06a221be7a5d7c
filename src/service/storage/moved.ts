import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { StoragePlaces } from "../../config/storage-places.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import { writeFileDurably } from "../../kernel/files/durable-file.ts";
import { fieldsOf } from "../../kernel/json/fields.ts";

/** `moved.json`: where the data of a directory went. The old data stays, and no service uses it. */
export interface Moved {
  /** `postgres://host/database`; null: the database has stayed. */
  database: string | null;
  /** `s3://bucket/prefix`. */
  blobs: string;
  /** Null while the move has not ended. */
  moved_at: number | null;
}

/** Null for a directory whose data is its own. Throws `STORAGE_FAILED` for a file that cannot be read. */
export function readMoved(directory: string): Moved | null {
  const file = join(directory, DATA_FILES.moved);
  try {
    const { database, blobs, moved_at } = fieldsOf(JSON.parse(readFileSync(file, "utf8"))) ?? {};
    return {
      database: typeof database === "string" ? database : null,
      blobs: String(blobs),
      moved_at: typeof moved_at === "number" ? moved_at : null,
    };
  } catch (cause) {
    if (systemCodeOf(cause) === "ENOENT") return null;
    throw new ImgbatchError("STORAGE_FAILED", `${file} cannot be read.`, { cause });
  }
}

export function writeMoved(directory: string, moved: Moved): Promise<void> {
  return writeFileDurably(join(directory, DATA_FILES.moved), `${JSON.stringify(moved)}\n`);
}

/**
 * Throws `INVALID_CONFIG`, which names the new places, for data of a directory that is being moved, at either side, and for
 * the old places of data that was moved.
 */
export function refuseMoved(directory: string, { database, blobs }: StoragePlaces): void {
  const moved = readMoved(directory);
  if (moved === null) return;
  const flags = flagsOf(moved);
  const file = join(directory, DATA_FILES.moved);
  if (moved.moved_at === null) {
    const message = `The data of ${directory} is being moved to ${placeOf(moved)}.`;
    const advice = `finish it: imgbatch admin move --data ${directory} ${flags}; or give it up: remove ${file}`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice });
  }
  if (blobs.kind !== "files" && (database.kind !== "sqlite" || moved.database === null)) return;
  const message = `The data of ${directory} was moved to ${placeOf(moved)}.`;
  const advice = `add ${flags}, or the same under "storage" in the configuration; to go on with the old data, remove ${file}`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice });
}

export function placeOf({ database, blobs }: Pick<Moved, "database" | "blobs">): string {
  return database === null ? blobs : `${database} and ${blobs}`;
}

function flagsOf({ database, blobs }: Moved): string {
  return `${database === null ? "" : `--database ${database} `}--blobs ${blobs}`;
}
