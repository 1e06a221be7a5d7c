import { createHash } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import PQueue from "p-queue";
import { type BlobStore, type ListedBlob, StorageUnavailable } from "../domain/ports/blob-store.ts";
import { type SqlDatabase, type SqlSession, written } from "./dialects/sql-session.ts";

/** A table of a SQLite database. */
interface MovedTable {
  name: string;
  columns: readonly string[];
  /** The columns of the primary key, in their order. */
  keys: readonly string[];
  /** The last number that was given to a row, also to one that is deleted; null for a table without numbers. */
  lastNumber: number | null;
}

/** The content of a table, the same in every dialect. */
interface TableSum {
  name: string;
  rows: number;
  /** The hash of all values of all rows, in any order; hexadecimal. */
  digest: string;
}

/** The tables in which a database describes itself, and the processes that run on it. */
const NOT_MOVED = ["schema_migrations", "sqlite_sequence", "workers", "request_counts"];

const PAGE_ROWS = 200;

/** The values of a row in the order of its columns, as the database has them. */
type Row = unknown[];

/** The tables of a SQLite database in the order in which they were made: a row refers only to tables before its own. */
export async function tablesOf({ reader }: SqlDatabase): Promise<MovedTable[]> {
  const all = sql<{ name: string }>`select name from sqlite_master where type = 'table' order by rowid`;
  const tables: MovedTable[] = [];
  for (const { name } of await reader.all(written(reader, all))) {
    if (NOT_MOVED.includes(name)) continue;
    const facts = sql<{ name: string; pk: number }>`select name, pk from pragma_table_info(${name})`;
    const columns = await reader.all(written(reader, facts));
    const last = sql<{ seq: number }>`select seq from sqlite_sequence where name = ${name}`;
    const keys = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
    tables.push({
      name,
      columns: columns.map((column) => column.name),
      keys: keys.map((column) => column.name),
      lastNumber: (await reader.first(written(reader, last)))?.seq ?? null,
    });
  }
  return tables;
}

/** Sums up all tables as they are at one moment. */
export function sumTables(database: SqlDatabase, tables: readonly MovedTable[]): Promise<TableSum[]> {
  return database.snapshot(async (session) => {
    const sums: TableSum[] = [];
    for (const table of tables) sums.push(await sumOf(session, table));
    return sums;
  });
}

async function sumOf(session: SqlSession, table: MovedTable): Promise<TableSum> {
  let rows = 0;
  const digest = Buffer.alloc(32);
  for await (const page of pagesOf(session, table)) {
    rows += page.length;
    for (const row of page) {
      const hash = createHash("sha256").update(JSON.stringify(row)).digest();
      for (const [i, byte] of hash.entries()) digest.writeUInt8(digest.readUInt8(i) ^ byte, i);
    }
  }
  return { name: table.name, rows, digest: digest.toString("hex") };
}

/** Whether nobody has made anything in a database: everything belongs to an account. */
export async function isUnused({ reader }: SqlDatabase): Promise<boolean> {
  return (await reader.first(reader.build.selectFrom("accounts").select("id").limit(1))) === null;
}

/**
 * Copies the rows of all tables to a database that has the same tables and is unused: all of them, or none when it throws.
 * Rows that its migrations have made are replaced.
 */
export function copyTables(from: SqlDatabase, to: SqlDatabase, tables: readonly MovedTable[]): Promise<void> {
  return to.transaction(async (tx) => {
    for (const { name } of tables.toReversed())
      await tx.run(written(tx, sql`delete from ${sql.table(name)}`));
    for (const table of tables) {
      const columns = namesOf(table.columns);
      for await (const page of pagesOf(from.reader, table)) {
        const rows = sql.join(page.map((row) => sql`(${sql.join(row)})`));
        await tx.run(written(tx, sql`insert into ${sql.table(table.name)} (${columns}) values ${rows}`));
      }
      const { name, keys, lastNumber } = table;
      if (lastNumber === null || tx.dialect === "sqlite") continue;
      const setNext = sql`select setval(pg_get_serial_sequence(${name}, ${keys[0]}), ${lastNumber})`;
      await tx.all(written(tx, setNext));
    }
  });
}

const namesOf = (columns: readonly string[]) => sql.join(columns.map((column) => sql.ref(column)));

/** Yields the rows in pages, in the order of their keys. PostgreSQL stores no NUL: the page has what it stores instead. */
async function* pagesOf(session: SqlSession, { name, columns, keys }: MovedTable): AsyncGenerator<Row[]> {
  // Numbers as names, so that the session leaves the values as they are.
  const values = sql.join(columns.map((column, at) => sql`${sql.ref(column)} as ${sql.ref(`${at}`)}`));
  const behind = (row: Row) => {
    const last = sql.join(keys.map((key) => row[columns.indexOf(key)]));
    return sql`where (${namesOf(keys)}) > (${last})`;
  };
  for (let last: Row | undefined; ; ) {
    const rest: RawBuilder<unknown> = last ? behind(last) : sql``;
    const query = sql<
      Record<string, unknown>
    >`select ${values} from ${sql.table(name)} ${rest} order by ${namesOf(keys)} limit ${sql.lit(PAGE_ROWS)}`;
    const found = await session.all(written(session, query));
    const page = found.map((row) => columns.map((_, at) => row[at]));
    last = page.at(-1);
    if (page.length > 0) yield page.map((row) => row.map(storable));
    if (page.length < PAGE_ROWS) return;
  }
}

function storable(value: unknown): unknown {
  return typeof value === "string" ? value.replaceAll("\0", "\uFFFD") : value;
}

/** Small pictures are made again when they are asked for; drafts have no key. */
export const LEFT_BEHIND = /^(thumbnails|drafts)\//;

const AT_ONCE = 4;

interface MovedBlobs {
  files: number;
  bytes: number;
  /** The files that an earlier move had copied already. */
  known: number;
}

/**
 * Copies all blobs, and reads each copy back: its hash must be that of the original. A blob that was copied earlier
 * is compared, not copied again. `onProgress` is called after each one. Rejects at the first failure.
 */
export async function copyBlobs(
  from: BlobStore,
  to: BlobStore,
  onProgress: (done: number, files: number) => void,
): Promise<MovedBlobs> {
  const blobs = (await from.list("")).filter(({ key }) => !LEFT_BEHIND.test(key));
  const there = new Map((await to.list("")).map(({ key, sizeBytes }) => [key, sizeBytes]));
  const moved: MovedBlobs = { files: 0, bytes: 0, known: 0 };
  const queue = new PQueue({ concurrency: AT_ONCE });
  const move = async ({ key, sizeBytes }: ListedBlob) => {
    const sha256 = await hashOf(from, key);
    const isKnown = there.get(key) === sizeBytes && (await hashOf(to, key)) === sha256;
    if (!isKnown && !(await copyBlob(from, to, key))) throw damaged(key);
    moved.files++;
    moved.bytes += sizeBytes;
    if (isKnown) moved.known++;
    onProgress(moved.files, blobs.length);
  };
  try {
    await queue.addAll(blobs.map((blob) => () => move(blob)));
  } catch (error) {
    queue.clear();
    await queue.onIdle();
    throw error;
  }
  return moved;
}

/** Copies a blob durably and reads the copy back. Returns false when there is no such blob, and rejects if the copy differs. */
export async function copyBlob(from: BlobStore, to: BlobStore, key: string): Promise<boolean> {
  const bytes = await from.open(key);
  if (bytes === null) return false;
  const hash = createHash("sha256");
  const draft = to.draft();
  try {
    // Without any write there is no blob, and the blob may be empty.
    await draft.write(new Uint8Array());
    for await (const chunk of bytes) {
      hash.update(chunk);
      await draft.write(chunk);
    }
    await draft.finish();
    await draft.keepAs(key);
  } finally {
    bytes.destroy();
    await draft.discard();
  }
  if ((await hashOf(to, key)) !== hash.digest("hex")) throw damaged(key);
  return true;
}

/** Null when there is no such blob. */
async function hashOf(blobs: BlobStore, key: string): Promise<string | null> {
  const bytes = await blobs.open(key);
  if (bytes === null) return null;
  const hash = createHash("sha256");
  for await (const chunk of bytes) hash.update(chunk);
  return hash.digest("hex");
}

function damaged(key: string): StorageUnavailable {
  const cause = new Error(`the copy of ${key} differs from the original`);
  return new StorageUnavailable("broken", `The copy of ${key} differs from the original.`, cause);
}
