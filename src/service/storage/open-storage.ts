import { setMaxListeners } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { BlobsPlace, DatabasePlace, StoragePlaces } from "../../config/storage-places.ts";
import { DATA_FILES } from "../../contract/data-directory.ts";
import { ImgbatchError, isDatabaseDamage } from "../../contract/errors.ts";
import { checkInvariants } from "../../domain/check-invariants.ts";
import { type BlobStore, StorageUnavailable } from "../../domain/ports/blob-store.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { hideNodeWarningOfAws } from "../../environment.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { programName } from "../../kernel/command-line.ts";
import { makeDirectory, removePartialFiles, writeFileDurably } from "../../kernel/files.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { withApiCode } from "../../server/http/errors.ts";
import { fileBlobs } from "../../storage/blobs/file-blobs.ts";
import { copyBlobs, copyTables, isUnused, sumTables, tablesOf } from "../../storage/copy.ts";
import { acquireDataLockPatiently } from "../../storage/data-lock.ts";
import type { Notices } from "../../storage/dialects/postgres.ts";
import type { SqlDatabase } from "../../storage/dialects/sql-session.ts";
import { openSqlite } from "../../storage/dialects/sqlite.ts";
import { storageFailure } from "../../storage/disk-trouble.ts";
import { migrate } from "../../storage/foundation.ts";
import { sqlStores } from "../../storage/stores.ts";
import { TERM_MS } from "../../workers/presence.ts";

/** Everything that a service keeps, open. */
export interface OpenStorage {
  stores: Stores;
  blobs: BlobStore;
  /** Shows the time that counts for all processes: that of the database, if it has a clock of its own. */
  clock: Clock;
  /** Problems of the files of the database itself, a line each. */
  integrityProblems(): Promise<string[]>;
  /** What an operator should know of the database, in sentences that do not name it. */
  warnings: SqlDatabase["warnings"];
  /** Throws `INVALID_CONFIG` for the bucket of another database. */
  refuseForeignBucket(): Promise<void>;
  /** Begins to receive the notifications of other processes; null where there are none. */
  listen: ((onNotice: (text: string) => void) => Notices) | null;
  close(): Promise<void>;
}

interface StorageOptions {
  /** The data directory: SQLite and files are in it, and bytes on their way to a bucket. */
  directory: string;
  clock?: Clock;
  /** See `openSqlite`. */
  isThrowaway?: boolean | undefined;
  /** See `openSqlite`. */
  onBroken?: ((cause: Error) => void) | undefined;
  /** See `openPostgres`. */
  stopping?: AbortSignal;
  isPatient?: boolean;
}

/**
 * Opens the database and the images of a service, without owning them; those of a data directory are made when there are
 * none. Throws `STORAGE_FAILED` when the file of a database is damaged, or is missing although images exist, or when a
 * database on another machine cannot be reached; and `INVALID_CONFIG` for a directory whose data was moved away, and for
 * a bucket without keys. See also `migrate`.
 */
export async function openStorage(
  places: StoragePlaces,
  { directory, clock = systemClock, ...options }: StorageOptions,
): Promise<OpenStorage> {
  refuseMoved(directory, places);
  if (places.database.kind === "sqlite" || places.blobs.kind === "files") await makeDataDirectory(directory);
  const closing = new AbortController();
  // Every pause between two attempts listens to it, and Node would warn of the eleventh listener.
  setMaxListeners(0, closing.signal);
  // Before the database, which would be made for a service that has no keys.
  const blobs = await openBlobs(places.blobs, directory, closing.signal);
  const database = await openDatabase(places.database, directory, clock, options);
  try {
    const { database: place } = places;
    const stores = sqlStores(database);
    let listen: OpenStorage["listen"] = null;
    if (place.kind === "postgres") {
      const { openNotices } = await import("../../storage/dialects/postgres.ts");
      listen = (onNotice) => openNotices(place.url, clock, onNotice);
    }
    return {
      listen,
      stores,
      blobs,
      refuseForeignBucket: () => refuseForeignBucket(places, { stores, blobs }),
      clock: database.clock,
      warnings: database.warnings,
      integrityProblems: async () => database.integrityProblems(),
      close: async () => {
        closing.abort();
        await database.close();
      },
    };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/**
 * Makes a data directory that of this process and opens the storage of its service. Throws as `openStorage` does,
 * `DATA_DIRECTORY_IN_USE` when another process owns the directory, and `INVALID_CONFIG` for the bucket of another database.
 */
export async function openOwnStorage(places: StoragePlaces, options: StorageOptions): Promise<OpenStorage> {
  const { directory } = options;
  await makeDataDirectory(directory);
  const release = await acquireDataLockPatiently(directory, systemClock);
  let opened: OpenStorage | null = null;
  const close = async () => {
    await opened?.close().finally(release);
  };
  try {
    await removePartialFiles(directory);
    await takeBackup(directory);
    opened = await openStorage(places, options);
    await claimBucket(places, opened);
    await opened.blobs.removeDrafts();
    return { ...opened, close };
  } catch (error) {
    await (opened === null ? release() : close());
    throw error;
  }
}

/** Opens the images of one place. When `closed` aborts, all requests to a bucket end. */
async function openBlobs(place: BlobsPlace, directory: string, closed?: AbortSignal): Promise<BlobStore> {
  if (place.kind === "files") return fileBlobs(join(directory, DATA_FILES.blobs));
  hideNodeWarningOfAws();
  const { roleKeys, s3Blobs } = await import("../../storage/blobs/s3.ts");
  const keys = place.accessKeyId === undefined ? await roleKeys(place.name) : undefined;
  return s3Blobs({ ...place, roleKeys: keys, scratchDirectory: join(directory, DATA_FILES.scratch), closed });
}

/** Opens one database, with all tables. Throws as `openStorage` does. */
export async function openDatabase(
  place: DatabasePlace,
  directory: string,
  clock: Clock,
  options: Pick<StorageOptions, "onBroken" | "isThrowaway" | "stopping" | "isPatient"> = {},
): Promise<SqlDatabase> {
  const { stopping, isPatient } = options;
  if (place.kind === "sqlite") return openLocalDatabase(directory, clock, options);
  const { openPostgres } = await import("../../storage/dialects/postgres.ts");
  try {
    return await migrated(await openPostgres({ ...place, stopping, isPatient }, clock));
  } catch (error) {
    throw namedError(error, place.name);
  }
}

/** Names the database in an error, without its secrets. */
function namedError(error: unknown, name: string): unknown {
  if (!(error instanceof ImgbatchError)) return error;
  return new ImgbatchError(error.code, `${name}: ${error.message}`, { advice: error.advice, cause: error });
}

async function openLocalDatabase(
  directory: string,
  clock: Clock,
  { onBroken, isThrowaway }: Pick<StorageOptions, "onBroken" | "isThrowaway">,
): Promise<SqlDatabase> {
  const file = join(directory, DATA_FILES.database);
  await refuseLostDatabase(file, directory);
  try {
    const lockFile = join(directory, DATA_FILES.lock);
    return await migrated(openSqlite(file, clock, { onBroken, lockFile, isThrowaway }));
  } catch (cause) {
    const damage = cause instanceof StorageUnavailable ? cause.cause : cause;
    if (!isDatabaseDamage(damage)) throw namedError(cause, file);
    throw storageFailure(directory, damage);
  }
}

async function migrated(database: SqlDatabase): Promise<SqlDatabase> {
  try {
    await migrate(database);
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** A new database in place of a lost one would have other balances, and would not know the stored images. */
async function refuseLostDatabase(file: string, directory: string): Promise<void> {
  if (existsSync(file) && statSync(file).size > 0) return;
  const images = await readdir(join(directory, DATA_FILES.blobs, "outputs")).catch(() => []);
  if (images.length === 0) return;
  const message = `${file} is missing or empty, but ${directory} holds images of batches: put the database back, or move the directory away.`;
  throw new ImgbatchError("STORAGE_FAILED", message);
}

/**
 * Makes a backup the data directory of a service: later backups leave it alone. Throws `INVALID_CONFIG` for a backup that did
 * not come to its end, where a service would begin from nothing.
 */
async function takeBackup(directory: string): Promise<void> {
  const file = join(directory, DATA_FILES.backup);
  if (!existsSync(file)) return;
  const { of_ms: atMs } = fieldsOf(JSON.parse(readFileSync(file, "utf8"))) ?? {};
  if (typeof atMs !== "number" && !existsSync(join(directory, DATA_FILES.database))) {
    const message = `${directory} is a backup that was not finished.`;
    const advice = `run the same \`${programName()} admin backup\` again, or name another directory`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice });
  }
  await rm(file, { force: true });
}

/** `moved.json`: where the data of a directory went. The old data stays, and no service uses it. */
interface Moved {
  /** `postgres://host/database`; null: the database has stayed. */
  database: string | null;
  /** `s3://bucket/prefix`. */
  blobs: string;
  /** Null while the move has not ended. */
  moved_at: number | null;
}

/** Null for a directory whose data is its own. Throws `STORAGE_FAILED` for a file that cannot be read. */
function readMoved(directory: string): Moved | null {
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

function writeMoved(directory: string, moved: Moved): Promise<void> {
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
    const advice = `finish it: ${programName()} admin move --data ${directory} ${flags}; or give it up: remove ${file}`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice });
  }
  if (blobs.kind !== "files" && (database.kind !== "sqlite" || moved.database === null)) return;
  const message = `The data of ${directory} was moved to ${placeOf(moved)}.`;
  const advice = `add ${flags}, or the same under "storage" in the configuration; to go on with the old data, remove ${file}`;
  throw new ImgbatchError("INVALID_CONFIG", message, { advice });
}

function placeOf({ database, blobs }: Pick<Moved, "database" | "blobs">): string {
  return database === null ? blobs : `${database} and ${blobs}`;
}

function flagsOf({ database, blobs }: Moved): string {
  return `${database === null ? "" : `--database ${database} `}--blobs ${blobs}`;
}

/** Makes a data directory that only its user can read. Throws `SAVE_FAILED` with the reason of the system. */
async function makeDataDirectory(directory: string): Promise<void> {
  await makeDirectory(directory, 0o700).catch((cause) => {
    const message = `The data directory ${directory} cannot be made: ${systemCodeOf(cause)}.`;
    throw new ImgbatchError("SAVE_FAILED", message, {
      cause,
      advice: "choose another directory with --data",
    });
  });
}

/** The object that names the database of a bucket. Another database would remove everything here that it does not know. */
const OWNER = "imgbatch-database";

/** While `admin move` fills the bucket, the owner has this before it, and no database has the bucket. */
const MOVING = "moving to ";

/** The folders of what services keep. A bucket may have other things, which they leave alone. */
const FOLDERS = ["inputs/", "outputs/", "files/", "answers/", "links/", "uploads/"];

type Bucket = BlobsPlace & { kind: "s3" };

interface Opened {
  stores: Pick<Stores, "read">;
  blobs: BlobStore;
}

/**
 * Names a database. It is the same after a restore, and another one after a move from SQLite to PostgreSQL, which copies the
 * id: the old database must not use the bucket again.
 */
async function ownerName(kind: "sqlite" | "postgres", { read }: Pick<Stores, "read">): Promise<string> {
  return `${kind} ${await read.upstreamJobs.databaseId()}`;
}

/**
 * Makes a new bucket that of this database; does nothing for files. Throws `INVALID_CONFIG`, with the repair, for the
 * bucket of another one, and for one without the images of this one; and `STORAGE_FAILED` when it cannot be used.
 */
export async function claimBucket({ database, blobs: place }: StoragePlaces, opened: Opened): Promise<void> {
  if (place.kind === "files") return;
  await inWords(place, async () => {
    const own = await ownerName(database.kind, opened.stores);
    const before = await readOwner(opened.blobs);
    if (before === null && (await areTogether(opened))) await opened.blobs.putNew(OWNER, textOf(own));
    // Another process, or another database, may have claimed it meanwhile.
    const owner = before ?? (await readOwner(opened.blobs));
    if (owner !== own) throw notOurs(place, own, owner);
  });
}

/** Throws as `claimBucket` does for the bucket of another database, or one that cannot be used, and changes nothing. */
async function refuseForeignBucket(
  { database, blobs: place }: StoragePlaces,
  { stores, blobs }: Opened,
): Promise<void> {
  if (place.kind === "files") return;
  await inWords(place, async () => {
    await blobs.list("ready/");
    const own = await ownerName(database.kind, stores);
    const owner = await readOwner(blobs);
    if (owner !== null && owner !== own) throw notOurs(place, own, owner);
  });
}

/** Asks a bucket, and says what to do when it cannot be used. */
async function inWords(place: Bucket, ask: () => Promise<void>): Promise<void> {
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof StorageUnavailable)) throw error;
    const { cause, message } = error;
    const { name, bucket, region, endpoint } = place;
    const isMissing = systemCodeOf(cause) === "NoSuchBucket";
    const reason = cause instanceof Error ? cause.message : message;
    const create = `aws s3 mb s3://${bucket} --region ${region}${atEndpoint(endpoint)}`;
    throw new ImgbatchError(
      "STORAGE_FAILED",
      isMissing
        ? `${name}: there is no bucket ${bucket} ${endpoint === undefined ? `at Amazon in ${region}` : `at ${endpoint}`}.`
        : `${name} cannot be used: ${reason}`,
      {
        advice: isMissing
          ? `create it: ${create}; or correct its name or its server (--blobs, --s3-endpoint, --s3-region)`
          : "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and storage.s3 of the configuration",
        cause,
      },
    );
  }
}

const atEndpoint = (endpoint: string | undefined) =>
  endpoint === undefined ? "" : ` --endpoint-url ${endpoint}`;

/** Whether a bucket has nothing, or nothing but one of these owners, or one for which a move had begun. */
export async function isFree(blobs: BlobStore, owners: readonly string[]): Promise<boolean> {
  if ((await blobs.list("")).some(({ key }) => key !== OWNER)) return false;
  const owner = await readOwner(blobs);
  return owner === null || owners.includes(owner.replace(MOVING, ""));
}

/** Keeps every database off a bucket while it is filled for one. */
function beginMove(blobs: BlobStore, owner: string): Promise<void> {
  return writeOwner(blobs, MOVING + owner);
}

async function writeOwner(blobs: BlobStore, owner: string): Promise<void> {
  await blobs.put(OWNER, textOf(owner));
}

const textOf = (owner: string) => Buffer.from(`${owner}\n`);

async function readOwner(blobs: BlobStore): Promise<string | null> {
  return (await blobs.read(OWNER))?.toString("utf8").trim() ?? null;
}

/** Whether both are new, or the bucket has something of a batch that the database knows. */
async function areTogether({ stores: { read }, blobs }: Opened): Promise<boolean> {
  const keys: string[] = [];
  for (const folder of FOLDERS) for (const { key } of await blobs.list(folder)) keys.push(key);
  if (keys.length === 0) return (await read.batches.latest(1)).length === 0;
  const ofBatches = keys.filter((key) => /^(in|out)puts\//.test(key));
  for (const id of new Set(ofBatches.map((key) => key.split("/")[1] ?? "")))
    if ((await read.batches.byId(id)) !== null) return true;
  return false;
}

function notOurs(place: Bucket, own: string, owner: string | null): ImgbatchError {
  const { name, bucket, prefix, endpoint } = place;
  if (owner?.startsWith(MOVING)) {
    const advice = "finish the move by the same command, or name another place";
    return new ImgbatchError("INVALID_CONFIG", `\`imgbatch admin move\` has begun to fill ${name}.`, {
      advice,
    });
  }
  const message =
    owner === null
      ? `${name} does not hold the data of this database.`
      : `${name} belongs to another database: the service would remove its files.`;
  const key = prefix === "" ? OWNER : `${prefix}/${OWNER}`;
  const hint =
    owner === null && own.startsWith("sqlite") ? `, or move there: ${programName()} admin move` : "";
  const advice = `name the place of this database${hint}; to give ${name} to it: echo ${own} | aws s3 cp - s3://${bucket}/${key}${atEndpoint(endpoint)}`;
  return new ImgbatchError("INVALID_CONFIG", message, { advice });
}

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
