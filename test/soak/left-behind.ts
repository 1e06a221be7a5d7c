import { existsSync } from "node:fs";
import { copyFile, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { LOCAL_STORAGE } from "../../src/config/storage-places.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { openStorage } from "../../src/service/storage/open-storage.ts";
import { fileBlobs } from "../../src/storage/blobs/file-blobs.ts";
import { type Customer, expect } from "./customer.ts";

const ENDED = ["completed", "failed", "cancelled", "output_deleted"];

/**
 * Looks at the files that a dead service left, without touching them (opening a database repairs it): what was once
 * committed must stay, money must agree, and what was a success must not have been made again.
 */
export class LeftBehind {
  /** By item: the boot in which its success was first found, and the files of its images. */
  readonly #successes = new Map<number, Item & { boot: number }>();
  #ledger = new Map<string, string>();
  #ended = new Map<string, number>();

  readonly #paths: Paths;

  constructor(paths: Paths) {
    this.#paths = paths;
  }

  async check(customer: Customer, boot: number): Promise<void> {
    if (!existsSync(join(this.#paths.data, "imgbatch.db"))) {
      expect(customer.batches.size === 0, "the database is gone");
      return;
    }
    await rm(this.#paths.scratch, { recursive: true, force: true });
    await mkdir(this.#paths.scratch, { recursive: true });
    for (const name of ["imgbatch.db", "imgbatch.db-wal", "imgbatch.db-journal"]) {
      if (existsSync(join(this.#paths.data, name)))
        await copyFile(join(this.#paths.data, name), join(this.#paths.scratch, name));
    }
    // A service that was killed while it made its database has promised nothing.
    if (customer.batches.size === 0 && !hasSchema(join(this.#paths.scratch, "imgbatch.db"))) return;
    const copy = await openStorage(LOCAL_STORAGE, { directory: this.#paths.scratch });
    try {
      const damage = await copy.integrityProblems();
      expect(damage.length === 0, `the database is damaged: ${damage}`);
      const { problems } = await checkInvariants(copy.stores, fileBlobs(join(this.#paths.data, "blobs")));
      expect(problems.length === 0, `books or files do not agree:\n  ${problems.join("\n  ")}`);
    } finally {
      await copy.close();
    }
    const database = new Sqlite(join(this.#paths.scratch, "imgbatch.db"));
    try {
      this.#checkLedger(database);
      this.#checkBatches(database, customer);
      this.#checkItems(database, boot);
      await this.#checkGenerations();
    } finally {
      database.close();
    }
  }

  #checkLedger(database: Sqlite.Database): void {
    const entries = rows<{ request_id: string }>(database, "select * from ledger_entries");
    const now = new Map(entries.map((entry) => [entry.request_id, JSON.stringify(entry)]));
    for (const [id, entry] of this.#ledger) {
      expect(now.get(id) === entry, `the ledger entry ${id} was ${entry}, is ${now.get(id)}`);
    }
    this.#ledger = now;
  }

  #checkBatches(database: Sqlite.Database, customer: Customer): void {
    const all = rows<Batch>(database, "select * from batches");
    const batches = new Map(all.map((batch) => [batch.id, batch]));
    for (const { id, view, done } of customer.batches.values()) {
      const batch = batches.get(id);
      expect(batch !== undefined, `the batch ${id} was accepted and is gone`);
      const isHidden = batch.record_deleted_at_ms !== null;
      expect(!done.deleteRecord || isHidden, `the record of ${id} was deleted and is back`);
      expect(batch.success_count >= view.success_count, `${id}: successes were lost`);
      if (ENDED.includes(view.status))
        expect(ENDED.includes(batch.status), `${id} had ended, is ${batch.status}`);
    }
    for (const [id, paid] of this.#ended) {
      expect(batches.get(id)?.actual_micro_usd === paid, `${id} was settled at ${paid}, and now otherwise`);
    }
    const ended = all.filter((batch) => ENDED.includes(batch.status));
    this.#ended = new Map(ended.map((batch) => [batch.id, batch.actual_micro_usd]));
  }

  #checkItems(database: Sqlite.Database, boot: number): void {
    const query = `select items.id, items.batch_id, custom_id, prompt, output_index, items.status, image_count,
      group_concat(blob_key || ' ' || sha256) as files
      from items left join outputs on outputs.item_id = items.id group by items.id`;
    const items = new Map(rows<Item>(database, query).map((item) => [item.id, item]));
    for (const [id, known] of this.#successes) {
      const item = items.get(id);
      const name = `item ${known.batch_id} ${known.custom_id}`;
      expect(item?.status === "success", `${name} was a success, is ${item?.status}`);
      expect(item.files === known.files, `${name}: its images were other ones`);
    }
    for (const item of items.values()) {
      if (item.status !== "success" || this.#successes.has(item.id)) continue;
      this.#successes.set(item.id, { ...item, boot });
    }
  }

  /** The requests to the quick provider; the real one keeps no such list. */
  async #checkGenerations(): Promise<void> {
    if (!existsSync(this.#paths.generations)) return;
    const lines = (await readFile(this.#paths.generations, "utf8")).trim().split("\n").filter(Boolean);
    const made = new Map<string, number>();
    for (const line of lines) {
      const { boot, made: words, attempt } = JSON.parse(line);
      const same = `${boot} ${words} ${attempt}`;
      expect(!made.has(same), `${words} was made twice in boot ${boot}`);
      made.set(same, boot);
      made.set(words, Math.max(made.get(words) ?? 0, boot));
    }
    for (const { prompt, output_index, boot, batch_id, custom_id } of this.#successes.values()) {
      const words = `${prompt
        .replaceAll(/\[\[.*?\]\]/g, " ")
        .replaceAll(/[ \t]+/g, " ")
        .trim()}#${output_index}`;
      const last = made.get(words);
      expect(last !== undefined, `${batch_id} ${custom_id} is a success and was never made (${words})`);
      expect(
        last <= boot,
        `${batch_id} ${custom_id} was a success in boot ${boot}, and made again in ${last}`,
      );
    }
  }

  /** After an orderly end with nothing left to do: no file that nobody names, no hold, no leftover of a service. */
  async checkEmptied(): Promise<void> {
    const files = await readdir(this.#paths.data, { recursive: true, withFileTypes: true });
    const paths = files
      .filter((f) => f.isFile())
      .map((f) => join(f.parentPath, f.name).slice(this.#paths.data.length + 1));
    const database = new Sqlite(join(this.#paths.scratch, "imgbatch.db"));
    const held = rows(database, "select name, held_micro_usd from accounts where held_micro_usd <> 0");
    const open = rows(
      database,
      `select id, status from batches where status not in ('${ENDED.join("','")}')`,
    );
    const named = new Set(
      [
        ...rows<{ blob_key: string }>(
          database,
          `select blob_key from outputs join batches on batches.id = outputs.batch_id
        where batches.status <> 'output_deleted'`,
        ),
        ...rows<{ blob_key: string }>(
          database,
          "select distinct blob_key from reference_images where blob_key is not null",
        ),
      ].map((row) => row.blob_key),
    );
    database.close();
    expect(open.length === 0, `not ended: ${JSON.stringify(open)}`);
    expect(held.length === 0, `money is still held: ${JSON.stringify(held)}`);
    const known = ["imgbatch.db", "lock.db", "credentials.json"];
    const stray = paths.filter((path) => !known.includes(path) && !named.has(path.replace(/^blobs\//, "")));
    expect(stray.length === 0, `files that nobody names: ${stray.join(", ")}`);
    const missing = [...named].filter((key) => !paths.includes(`blobs/${key}`));
    expect(missing.length === 0, `files that are gone: ${missing.join(", ")}`);
  }
}

interface Paths {
  data: string;
  /** The file in which a quick service lists what it made. */
  generations: string;
  /** The database is copied to it. */
  scratch: string;
}

interface Batch {
  id: string;
  status: string;
  record_deleted_at_ms: number | null;
  success_count: number;
  actual_micro_usd: number;
}

interface Item {
  id: number;
  batch_id: string;
  custom_id: string;
  prompt: string;
  output_index: number;
  status: string;
  files: string | null;
}

const rows = <T>(database: Sqlite.Database, sql: string) => database.prepare(sql).all() as T[];

function hasSchema(file: string): boolean {
  const database = new Sqlite(file);
  try {
    return database.prepare("select 1 from sqlite_master where name = 'batches'").get() !== undefined;
  } finally {
    database.close();
  }
}
