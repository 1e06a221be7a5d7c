import { randomBytes } from "node:crypto";
import Sqlite from "better-sqlite3";

/** What a submission writes: each table, and the columns that hold what no two batches have in common. */
const TABLES = {
  batches: ["id"],
  batch_events: ["batch_id"],
  ledger_entries: ["batch_id", "request_id"],
  items: ["batch_id"],
};

/**
 * Opens a copy of the database of a service. Returns what inserts the rows of a batch there again, each time under a new id
 * that is as random as that of a new batch.
 */
export function sameRows(file, id) {
  const to = new Sqlite(file);
  for (const mode of ["journal_mode = WAL", "synchronous = FULL"]) to.pragma(mode);
  const inserts = Object.entries(TABLES).map(([table, own]) => {
    const rows = to.prepare(`SELECT * FROM ${table} WHERE ${own[0]} = ? ORDER BY rowid`).all(id);
    if (rows.length === 0) throw new Error(`no row of ${table} belongs to ${id}`);
    // Further events were written after the submission.
    if (table === "batch_events") rows.length = 1;
    const counter = table === "items" ? "id" : "seq";
    const columns = Object.keys(rows[0]).filter((name) => name !== counter);
    const places = columns.map(() => "?").join();
    const names = columns.map((name) => `"${name}"`);
    const insert = to.prepare(`INSERT INTO ${table} (${names.join()}) VALUES (${places})`);
    return (newId) => {
      for (const row of rows) {
        insert.run(...columns.map((name) => (own.includes(name) ? row[name].replace(id, newId) : row[name])));
      }
    };
  });
  return to.transaction(() => {
    const newId = `imgbatch_${randomBytes(16).toString("hex")}`;
    for (const insert of inserts) insert(newId);
  });
}
