import { existsSync } from "node:fs";
import { join } from "node:path";
import type { StoragePlaces } from "../../config/storage-places.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { checkInvariants } from "../../domain/check-invariants.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { withApiCode } from "../../server/http/errors.ts";
import { copyBlobs, copyTables, isUnused, sumTables, tablesOf } from "../../storage/copy.ts";
import { acquireDataLockPatiently } from "../../storage/data-lock.ts";
import type { SqlDatabase } from "../../storage/dialects/sql-session.ts";
import { sqlStores } from "../../storage/stores.ts";
import { TERM_MS } from "../../workers/presence.ts";
import { beginMove, isFree, ownerName, writeOwner } from "./bucket-owner.ts";
import { type Moved, openBlobs, openDatabase, placeOf, readMoved, writeMoved } from "./open-storage.ts";

interface MoveReport extends Awaited<ReturnType<typeof copyBlobs>> {
  /** Null: the database has stayed. */
  database: string | null;
  blobs: string;
  tables: number;
  rows: number;
  /** Faults that were there before the move, and are at the new place too: see `checkInvariants`. */
  problems: string[];
}

interface MoveOptions {
  directory: string;
  /** Where the data goes: its images to a bucket, and its database to PostgreSQL unless that is to stay. */
  to: StoragePlaces;
  clock?: Clock;
  /** Called when a step begins or has come further. */
  onProgress?: (text: string) => void;
}

/** Both sides of a move, open. */
interface Sides {
  from: { database: SqlDatabase; blobs: BlobStore };
  /** The same database when that stays. */
  to: { database: SqlDatabase; blobs: BlobStore };
}

/**
 * Copies the data of a directory to another place, compares both, and marks the directory as moved; the old data stays as
 * it is. An interrupted move goes on where it stopped. Throws `DATA_DIRECTORY_IN_USE` while a service runs on
 * either side, `FILE_EXISTS` when there is something else at the new place, and `VERIFY_FAILED` when the copy differs.
 */
export async function moveStorage(options: MoveOptions): Promise<MoveReport> {
  const { directory, to, clock = systemClock, onProgress = () => {} } = options;
  if (!existsSync(join(directory, DATA_FILES.database))) {
    throw new ImgbatchError(
      "USAGE",
      `${directory} is not a data directory: it has no ${DATA_FILES.database}`,
    );
  }
  const target = targetOf(to);
  const release = await acquireDataLockPatiently(directory, clock);
  try {
    const earlier = readMoved(directory);
    if (earlier !== null) refuseOther(directory, earlier, target);
    const sides = await open(directory, to, clock);
    try {
      const owner = await ownerName(to.database.kind, sqlStores(sides.from.database));
      if (earlier === null) await refuseUsed(sides, target, owner);
      await beginMove(sides.to.blobs, owner);
      await writeMoved(directory, { ...target, moved_at: null });
      const report = await move(sides, target, onProgress);
      await writeOwner(sides.to.blobs, owner);
      await writeMoved(directory, { ...target, moved_at: clock.nowMs() });
      return report;
    } finally {
      await sides.from.database.close();
      if (sides.to.database !== sides.from.database) await sides.to.database.close();
    }
  } catch (error) {
    throw withApiCode(error);
  } finally {
    release();
  }
}

type Target = Pick<Moved, "database" | "blobs">;

function targetOf({ database, blobs }: StoragePlaces): Target {
  if (blobs.kind !== "s3") {
    const message = "Name the new place of the images, and that of the database unless it is to stay.";
    throw new ImgbatchError("USAGE", message, {
      advice: "add --database postgres://host/database --blobs s3://bucket/prefix",
    });
  }
  return { database: database.kind === "postgres" ? database.name : null, blobs: blobs.name };
}

function refuseOther(directory: string, earlier: Moved, target: Target): void {
  const isSame = earlier.database === target.database && earlier.blobs === target.blobs;
  if (isSame && earlier.moved_at === null) return;
  const state = earlier.moved_at === null ? "is being moved" : "was moved";
  const file = join(directory, DATA_FILES.moved);
  throw new ImgbatchError("FILE_EXISTS", `The data of ${directory} ${state} to ${placeOf(earlier)}.`, {
    advice: `to move the old data again, remove ${file}`,
  });
}

async function open(directory: string, places: StoragePlaces, clock: Clock): Promise<Sides> {
  const local = { kind: "sqlite" } as const;
  const database = await openDatabase(local, directory, clock);
  const from = { database, blobs: await openBlobs({ kind: "files" }, directory) };
  try {
    const blobs = await openBlobs(places.blobs, directory);
    await blobs.removeDrafts();
    const isStaying = places.database.kind === "sqlite";
    const other = isStaying
      ? database
      : await openDatabase(places.database, directory, clock, { isPatient: true });
    return { from, to: { database: other, blobs } };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** Others are silent by comparison with it. */
const MOVER = { id: "move", role: "api", version: "", providers: [], isPaused: false } as const;

/** Everything at the new place is replaced or stays for ever, so there must be nothing that is not of this move. */
async function refuseUsed({ from, to }: Sides, { database, blobs }: Target, owner: string): Promise<void> {
  const owners = [owner];
  if (to.database !== from.database && database !== null) {
    if (!(await isUnused(to.database))) throw notEmpty(database);
    const stores = sqlStores(to.database);
    await refuseRunning(stores, database);
    // A service has been tried there.
    owners.push(await ownerName("postgres", stores));
  }
  if (!(await isFree(to.blobs, owners))) throw notEmpty(blobs);
}

/** A service that runs at the new place would not know what is copied, and would remove it. */
async function refuseRunning(stores: Stores, database: string): Promise<void> {
  const others = await stores.write(async ({ workers }) => {
    await workers.insert(MOVER);
    await workers.removeSilent(MOVER.id, TERM_MS);
    await workers.remove(MOVER.id);
    return workers.list();
  });
  if (others.length === 0) return;
  throw new ImgbatchError("DATA_DIRECTORY_IN_USE", `A service runs on ${database}.`, {
    advice: "stop all of its processes, then run the same command again",
  });
}

function notEmpty(place: string): ImgbatchError {
  const message = `${place} is not empty.`;
  return new ImgbatchError("FILE_EXISTS", message, { advice: "name an empty one, or another prefix" });
}

async function move(
  { from, to }: Sides,
  target: Target,
  onProgress: (text: string) => void,
): Promise<MoveReport> {
  // As in the service: the bytes first, then the rows that name them.
  const files = await copyBlobs(from.blobs, to.blobs, (done, all) =>
    onProgress(`copying files: ${done} of ${all}`),
  );
  const tables = target.database === null ? [] : await moveTables(from.database, to.database, onProgress);
  onProgress("checking both sides");
  const before = await checkInvariants(sqlStores(from.database), from.blobs);
  const after = await checkInvariants(sqlStores(to.database), to.blobs);
  const news = after.problems.filter((problem) => !before.problems.includes(problem));
  if (news.length > 0 || after.images !== before.images) {
    throw new ImgbatchError("VERIFY_FAILED", `The copy differs: ${news[0] ?? "it has other images"}.`);
  }
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  return { ...target, ...files, tables: tables.length, rows, problems: after.problems };
}

async function moveTables(
  from: SqlDatabase,
  to: SqlDatabase,
  onProgress: (text: string) => void,
): ReturnType<typeof sumTables> {
  onProgress("copying the database");
  const tables = await tablesOf(from);
  // An earlier move may have been ended after its commit.
  if (await isUnused(to)) await copyTables(from, to, tables);
  const [before, after] = [await sumTables(from, tables), await sumTables(to, tables)];
  const other = before.find(({ digest }, i) => digest !== after[i]?.digest);
  if (other === undefined) return before;
  throw new ImgbatchError("VERIFY_FAILED", `The copy of the table ${other.name} differs.`);
}
