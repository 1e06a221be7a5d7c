import { closeSync, openSync } from "node:fs";
import Sqlite from "better-sqlite3";

/** All pages in one step: between two steps another process may write, and then SQLite begins again. */
const ALL_PAGES = 0x7fffffff;

/**
 * Copies a database as it is at one moment into a new file, while other processes go on writing. Items that are not made yet
 * are marked in the copy, unless they are free of charge: a service that goes on from it does not know whether they were paid for
 * after that moment. The guides for operators have the same statements for other databases.
 */
export async function copySqlite(file: string, target: string): Promise<void> {
  // Prompts are in it: SQLite would make a file that others can read.
  closeSync(openSync(target, "wx", 0o600));
  const source = new Sqlite(file, { readonly: true, fileMustExist: true });
  try {
    await source.backup(target, { progress: () => ALL_PAGES });
  } finally {
    source.close();
  }
  const copy = new Sqlite(target);
  try {
    copy.exec(`update items set maybe_paid = 'once' where status = 'pending' and maybe_paid = 'no'
      and batch_id in (select id from batches where ended_at_ms is null and price not like '%"isFree":true%')`);
    // The upstream is asked for these before they are created: the old service may have done it.
    copy.exec("update upstream_jobs set creates = 1 where creates = 0 and step in ('new', 'uploaded')");
  } finally {
    copy.close();
  }
}

/** Each blob that a row of the database names, and whether the row is wrong without it. */
export function blobsNamedIn(file: string): { key: string; isNeeded: boolean }[] {
  const database = new Sqlite(file, { fileMustExist: true });
  try {
    const rows = database.prepare(NAMED).all() as { key: string; needed: number }[];
    return rows.map(({ key, needed }) => ({ key, isNeeded: needed === 1 }));
  } finally {
    database.close();
  }
}

const NAMED = `
  select o.blob_key as key, b.status != 'output_deleted' as needed from outputs o join batches b on b.id = o.batch_id
  union all select r.blob_key, b.ended_at_ms is null from reference_images r join batches b on b.id = r.batch_id
    where r.blob_key is not null and b.inputs_purged_at_ms is null
  union all select json_extract(input, '$.blobKey'), input_read_at_ms is null and ended_at_ms is null from batches
    where input is not null and inputs_purged_at_ms is null
  union all select blob_key, expires_at_ms != 0 from files
  union all select 'links/' || id, 1 from linked_images
  union all select 'answers/' || realtime_id, 1 from keyed_requests where json_extract(answer, '$.sha256') is not null`;
