import type { BlobsPlace, StoragePlaces } from "../../config/storage-places.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type BlobStore, StorageUnavailable } from "../../domain/ports/blob-store.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import { programName } from "../../kernel/command-line.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";

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
export async function ownerName(
  kind: "sqlite" | "postgres",
  { read }: Pick<Stores, "read">,
): Promise<string> {
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
export async function refuseForeignBucket(
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
export function beginMove(blobs: BlobStore, owner: string): Promise<void> {
  return writeOwner(blobs, MOVING + owner);
}

export async function writeOwner(blobs: BlobStore, owner: string): Promise<void> {
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
