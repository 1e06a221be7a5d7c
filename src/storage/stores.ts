import type { Repositories, Stores } from "../domain/ports/stores.ts";
import type { SqlDatabase, SqlSession } from "./dialects/sql-session.ts";
import { accountRepository } from "./repositories/accounts.ts";
import { batchRepository } from "./repositories/batches.ts";
import { fileRepository } from "./repositories/files.ts";
import { idempotencyRepository } from "./repositories/idempotency.ts";
import { itemRepository } from "./repositories/items.ts";
import { keyRepository } from "./repositories/keys.ts";
import { ledgerRepository } from "./repositories/ledger.ts";
import { outputRepository } from "./repositories/outputs.ts";
import { providerCallsRepository } from "./repositories/providers/calls.ts";
import { providerHealthRepository } from "./repositories/providers/health.ts";
import { realtimeHoldRepository } from "./repositories/realtime/holds.ts";
import { keyedRequestRepository } from "./repositories/realtime/keyed-requests.ts";
import { linkedImageRepository } from "./repositories/realtime/linked-images.ts";
import { usageRepository } from "./repositories/realtime/usage.ts";
import { referenceRepository } from "./repositories/references.ts";
import { retentionTimeRepository } from "./repositories/retention-time.ts";
import { upstreamJobRepository } from "./repositories/upstream-jobs.ts";

/** The stores of the domain over a database whose schema is up to date. */
export function sqlStores(database: SqlDatabase): Stores {
  return {
    read: repositoriesOf(database.reader),
    snapshot: (work) => database.snapshot((session) => work(repositoriesOf(session))),
    write: (work) => database.transaction((session) => work(repositoriesOf(session))),
  };
}

function repositoriesOf(session: SqlSession): Repositories {
  return {
    accounts: accountRepository(session),
    keys: keyRepository(session),
    ledger: ledgerRepository(session),
    batches: batchRepository(session),
    items: itemRepository(session),
    outputs: outputRepository(session),
    references: referenceRepository(session),
    idempotency: idempotencyRepository(session),
    upstreamJobs: upstreamJobRepository(session),
    realtimeHolds: realtimeHoldRepository(session),
    keyedRequests: keyedRequestRepository(session),
    usage: usageRepository(session),
    retentionTime: retentionTimeRepository(session),
    providerHealth: providerHealthRepository(session),
    providerCalls: providerCallsRepository(session),
    files: fileRepository(session),
    linkedImages: linkedImageRepository(session),
    touch: async () => {
      await session.run(
        session.build.updateTable("schema_migrations").set((eb) => ({ name: eb.ref("name") })),
      );
    },
  };
}
