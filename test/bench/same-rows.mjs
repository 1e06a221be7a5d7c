import Sqlite from "better-sqlite3";

const TABLES = ["batches", "batch_events", "items"];

/** Opens a copy of the database of a service. Returns what inserts the rows of a batch there again, under a new id each time. */
export function sameRows(file, id) {
  const to = new Sqlite(file);
  for (const mode of ["journal_mode = WAL", "synchronous = FULL"]) to.pragma(mode);
  const inserts = TABLES.map((table) => {
    const own = table === "batches" ? "id" : "batch_id";
    const rows = to.prepare(`SELECT * FROM ${table} WHERE ${own} = ?`).all(id);
    const counter = table === "items" ? "id" : "seq";
    const columns = Object.keys(rows[0]).filter((name) => name !== counter);
    const places = columns.map(() => "?").join();
    const insert = to.prepare(`INSERT INTO ${table} (${columns.join()}) VALUES (${places})`);
    return (round) => {
      for (const row of rows) {
        insert.run(...columns.map((name) => (name === own ? `${id}-${round}` : row[name])));
      }
    };
  });
  let round = 0;
  return to.transaction(() => {
    round++;
    for (const insert of inserts) insert(round);
  });
}
