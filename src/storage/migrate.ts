import { ImgbatchError } from "../contract/errors.ts";
import type { SqlDatabase } from "./dialects/sql-session.ts";
import { foundation } from "./migrations/001-010/001-foundation.ts";
import { waitingAndOpenJobs } from "./migrations/001-010/002-waiting-and-open-jobs.ts";
import { realtime } from "./migrations/001-010/003-realtime.ts";
import { retentionTime } from "./migrations/001-010/004-retention-time.ts";
import { modelVersion } from "./migrations/001-010/005-model-version.ts";
import { upstreams } from "./migrations/001-010/006-upstreams.ts";
import { files } from "./migrations/001-010/007-files.ts";
import { lines } from "./migrations/001-010/008-lines.ts";
import { jobs } from "./migrations/001-010/009-jobs.ts";
import { keyedRequests } from "./migrations/001-010/010-keyed-requests.ts";
import { stopAsked } from "./migrations/011-020/011-stop-asked.ts";
import { itemPrices } from "./migrations/011-020/012-item-prices.ts";
import { linkedImages } from "./migrations/011-020/013-linked-images.ts";
import { downloads } from "./migrations/011-020/014-downloads.ts";
import { filePurposes } from "./migrations/011-020/015-file-purposes.ts";
import { workers } from "./migrations/011-020/016-workers.ts";
import type { Migration } from "./migrations/migration.ts";

const MIGRATIONS: readonly Migration[] = [
  foundation,
  waitingAndOpenJobs,
  realtime,
  retentionTime,
  modelVersion,
  upstreams,
  files,
  lines,
  jobs,
  keyedRequests,
  stopAsked,
  itemPrices,
  linkedImages,
  downloads,
  filePurposes,
  workers,
];

/** Brings the database to the schema of this version, in one transaction. A newer database is refused. */
export async function migrate(database: SqlDatabase): Promise<void> {
  await database.transaction(async (session) => {
    const { build } = session;
    const table = build.schema.createTable("schema_migrations").ifNotExists();
    await session.run(table.addColumn("name", "text", (c) => c.primaryKey()));
    const rows = await session.all(build.selectFrom("schema_migrations").select("name"));
    const done = new Set(rows.map((row) => row.name));
    const unknown = [...done].filter((name) => !MIGRATIONS.some((m) => m.name === name));
    if (unknown.length > 0) {
      const message = `This data directory was written by a newer version (${unknown.join(", ")}).`;
      throw new ImgbatchError("INVALID_CONFIG", message);
    }
    for (const migration of MIGRATIONS.filter((m) => !done.has(m.name))) {
      for (const statement of migration.statements(session)) await session.run(statement);
      await session.run(build.insertInto("schema_migrations").values({ name: migration.name }));
    }
  });
}
