import { runnerImport } from "vite";
import { issueKey, openAccount } from "../../build/domain/accounts.js";
import { openBatch } from "../../build/domain/batches/lifecycle.js";
import { NEW_BATCH } from "../../build/domain/batches/new-batch.js";
import { systemClock } from "../../build/kernel/clock.js";
import { randomIds } from "../../build/kernel/ids.js";
import { openPostgres } from "../../build/storage/dialects/postgres.js";
import { migrate } from "../../build/storage/migrate.js";
import { sqlStores } from "../../build/storage/stores.js";

const deps = { clock: systemClock, ids: randomIds };
const PRICE = {
  imageMicroUsd: 10,
  holdMicroUsd: 10,
  basis: {
    modelPriceUsd: 0.00001,
    groupMultiplier: 1,
    providerMultiplier: 1,
    batchDiscount: 1,
    holdMultiplier: 1,
  },
};

/** Stores on a PostgreSQL of their own, whose commits are durable. Null where there is no PostgreSQL. */
export async function openSharedStores() {
  const path = new URL("../support/postgres-server.ts", import.meta.url).pathname;
  const { postgresBin, startPostgresServer } = (await runnerImport(path)).module;
  if (postgresBin() === null) return null;
  const server = await startPostgresServer({ fsync: true, isSearched: false });
  const database = await openPostgres({ url: server.url() }, systemClock);
  await migrate(database);
  const close = async () => {
    await database.close();
    await server.stop();
  };
  return { stores: sqlStores(database), url: server.url(), sql: server.sql, close };
}

/** Makes running batches of a key of their own, with this many items each. Returns their ids. */
export async function makeBatches(stores, count, itemCount) {
  const { accountId, id: apiKeyId } = await stores.write(async (tx) => {
    const account = await openAccount(tx, deps, { name: randomIds.batchId(), balanceMicroUsd: 1_000_000 });
    return issueKey(tx, deps, { name: "k", accountId: account.id, group: "default", expiresAtMs: null });
  });
  const ids = [];
  for (let i = 0; i < count; i++) {
    const id = randomIds.batchId();
    const facts = {
      taskName: "bench",
      model: "m",
      mimeType: "image/png",
      provider: "p",
      upstream: "procedural",
    };
    const money = { price: PRICE, estimatedMicroUsd: 0, holdMicroUsd: 0 };
    const none = { parentBatchId: null, metadata: null, input: null, inputsPurgedAtMs: null };
    const times = { createdAtMs: 1, submittedAtMs: 1 };
    const batch = {
      ...NEW_BATCH,
      ...facts,
      ...money,
      ...none,
      ...times,
      id,
      apiKeyId,
      accountId,
      itemCount,
      source: "batch",
    };
    const items = Array.from({ length: itemCount }, (_, position) => ({
      ...{ position, sourceIndex: position, outputIndex: 0, customId: `i${position}`, prompt: "p" },
    }));
    await stores.write(async (tx) => {
      await openBatch(tx, batch, 1);
      await tx.items.insertMany(id, items);
      await tx.batches.changeStatus(id, "queued", "running");
    });
    ids.push(id);
  }
  return ids;
}
