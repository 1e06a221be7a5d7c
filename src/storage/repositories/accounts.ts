import { sql } from "kysely";
import { UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import { type AccountRecord, heldForImages } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { insertNew, insertRows } from "./rows.ts";

const ACCOUNT_BY_ID = prepared((build, { id }: Values<Pick<AccountRecord, "id">>) =>
  build.selectFrom("accounts").selectAll().where("id", "=", id),
);

interface Change {
  id: string;
  balance: number;
  held: number;
  /** The smallest balance that is enough. */
  least: number;
}

const CHANGE_ACCOUNT = prepared((build, { id, balance, held, least }: Values<Change>) =>
  build
    .updateTable("accounts")
    .set((eb) => ({
      balanceMicroUsd: eb("balanceMicroUsd", "+", balance),
      heldMicroUsd: eb("heldMicroUsd", "+", held),
    }))
    .where("id", "=", id)
    .where("balanceMicroUsd", ">=", least),
);

function accountRepository({ build, first, all, run, changes }: SqlSession): Repositories["accounts"] {
  const accounts = () => build.selectFrom("accounts").selectAll();
  return {
    insert: ({ id, name, createdAtMs, isPlay = false }) =>
      run(build.insertInto("accounts").values({ id, name, createdAtMs, isPlay })),
    setRealAccount: (id, realAccountId) =>
      run(build.updateTable("accounts").set({ realAccountId }).where("id", "=", id)),
    byId: (id) => first(ACCOUNT_BY_ID(build, { id })),
    byName: (name) => first(accounts().where("name", "=", name)),
    list: () => all(accounts().orderBy("createdAtMs").orderBy("id")),
    change: async (id, { balanceMicroUsd, heldMicroUsd }) => {
      const change = { id, balance: balanceMicroUsd, held: heldMicroUsd, least: -balanceMicroUsd };
      return { isEnough: (await changes(CHANGE_ACCOUNT(build, change))) === 1 };
    },
  };
}

/** Without the hash of the key. */
const KEY = [
  ...(["id", "name", "prefix", "accountId", "group"] as const),
  ...(["createdAtMs", "expiresAtMs", "disabledAtMs", "enabledAtMs"] as const),
] as const;

const KEY_BY_SHA256 = prepared((build, { sha256 }: Values<{ sha256: string }>) =>
  build.selectFrom("api_keys").select(KEY).where("sha256", "=", sha256),
);

function keyRepository(session: SqlSession): Repositories["keys"] {
  const { build, first, all, run } = session;
  const keys = () => build.selectFrom("api_keys").select(KEY);
  return {
    insert: (key) => insertRows(session, "api_keys", [key]),
    bySha256: (sha256) => first(KEY_BY_SHA256(build, { sha256 })),
    byId: (id) => first(keys().where("id", "=", id)),
    list: () => all(keys().orderBy("createdAtMs").orderBy("id")),
    setDisabled: (id, atMs) =>
      run(build.updateTable("api_keys").set({ disabledAtMs: atMs }).where("id", "=", id)),
    setEnabled: async (id, atMs) => {
      const enabled = { disabledAtMs: null, enabledAtMs: atMs };
      await run(build.updateTable("api_keys").set(enabled).where("id", "=", id));
    },
  };
}

function ledgerRepository(session: SqlSession): Repositories["ledger"] {
  const { build, first, all } = session;
  const entries = () => build.selectFrom("ledger_entries").selectAll();
  return {
    append: (entry) => insertNew(session, "ledger_entries", entry, ["requestId"]),
    byRequestId: (requestId) => first(entries().where("requestId", "=", requestId)),
    list: async ({ accountId, batchIds }) => {
      let query = entries().orderBy("seq");
      if (accountId !== undefined) query = query.where("accountId", "=", accountId);
      if (batchIds !== undefined) query = query.where("batchId", "in", [...batchIds]);
      return all(query);
    },
    page: async ({ accountIds, beforeSeq = Number.MAX_SAFE_INTEGER, offset = 0, limit }) => {
      const before = entries().where("accountId", "in", accountIds).where("seq", "<", beforeSeq);
      return all(before.orderBy("seq", "desc").limit(limit).offset(offset));
    },
    changeAfter: async (accountId, seq) => {
      const later = build
        .selectFrom("ledger_entries")
        .select((eb) => eb.fn.sum<number | null>("balanceChangeMicroUsd").as("change"))
        .where("accountId", "=", accountId)
        .where("seq", ">", seq);
      return (await first(later))?.change ?? 0;
    },
  };
}

const FIND_IDEMPOTENCY_KEY = prepared((build, { apiKeyId, key }: Values<{ apiKeyId: string; key: string }>) =>
  build.selectFrom("idempotency_keys").selectAll().where("apiKeyId", "=", apiKeyId).where("key", "=", key),
);

function idempotencyRepository(session: SqlSession): Repositories["idempotency"] {
  const { build, first, run, changes } = session;
  return {
    find: (apiKeyId, key) => first(FIND_IDEMPOTENCY_KEY(build, { apiKeyId, key })),
    removeOfRecordsDeletedBefore: async (ms) => {
      const gone = build.selectFrom("batches").select("id").where("recordDeletedAtMs", "<", ms);
      return changes(build.deleteFrom("idempotency_keys").where("batchId", "in", gone));
    },
    insert: (claim) => insertNew(session, "idempotency_keys", claim, ["apiKeyId", "key"]),
    replace: async ({ apiKeyId, key, ...facts }) => {
      const row = build.insertInto("idempotency_keys").values({ apiKeyId, key, ...facts });
      await run(row.onConflict((on) => on.columns(["apiKeyId", "key"]).doUpdateSet(facts)));
    },
  };
}

function budgetRepository({ build, all, run }: SqlSession): Repositories["budgets"] {
  return {
    list: async () => all(build.selectFrom("budgets").selectAll().orderBy("scope")),
    put: async ({ scope, ...facts }) => {
      const insert = build.insertInto("budgets").values({ scope, ...facts });
      await run(insert.onConflict((on) => on.column("scope").doUpdateSet(facts)));
    },
    remove: (scope) => run(build.deleteFrom("budgets").where("scope", "=", scope)),
    spent: async ({ fromMs, beforeMs }) => {
      const ofBatches = build
        .selectFrom("ledger_entries")
        .innerJoin("batches", "batches.id", "ledger_entries.batchId")
        .innerJoin("accounts", "accounts.id", "ledger_entries.accountId")
        .select(["ledger_entries.accountId", "batches.provider", "batches.taskName as run"])
        .select((eb) => eb.fn.sum<number>("ledger_entries.amountMicroUsd").as("microUsd"))
        .where("ledger_entries.kind", "in", ["capture", "charge"])
        .where("ledger_entries.createdAtMs", ">=", fromMs)
        .where("ledger_entries.createdAtMs", "<", beforeMs)
        .where("accounts.isPlay", "=", sql<boolean>`0`)
        .groupBy(["ledger_entries.accountId", "batches.provider", "batches.taskName"]);
      const inRealtime = build
        .selectFrom("usage_records")
        .innerJoin("accounts", "accounts.id", "usage_records.accountId")
        .select(["usage_records.accountId", "usage_records.provider"])
        .select((eb) => eb.fn.sum<number>("usage_records.amountMicroUsd").as("microUsd"))
        .where("usage_records.createdAtMs", ">=", fromMs)
        .where("usage_records.createdAtMs", "<", beforeMs)
        .where("accounts.isPlay", "=", sql<boolean>`0`)
        .groupBy(["usage_records.accountId", "usage_records.provider"]);
      const realtime = (await all(inRealtime)).map((row) => ({ ...row, run: null }));
      return [...(await all(ofBatches)), ...realtime].filter(({ microUsd }) => microUsd > 0);
    },
    held: async () => {
      const ofBatches = build
        .selectFrom("batches")
        .innerJoin("accounts", "accounts.id", "batches.accountId")
        .select(["batches.accountId", "batches.provider", "batches.taskName as run"])
        .select((eb) => eb.fn.sum<number>("batches.holdMicroUsd").as("microUsd"))
        .where("batches.status", "in", UNFINISHED_BATCH_STATUSES)
        .where("accounts.isPlay", "=", sql<boolean>`0`)
        .groupBy(["batches.accountId", "batches.provider", "batches.taskName"]);
      const inRealtime = build
        .selectFrom("realtime_holds")
        .innerJoin("accounts", "accounts.id", "realtime_holds.accountId")
        .select(["realtime_holds.accountId", "realtime_holds.lostCalls", "realtime_holds.amountMicroUsd"])
        .where("accounts.isPlay", "=", sql<boolean>`0`);
      const realtime = (await all(inRealtime)).flatMap(({ accountId, ...hold }) =>
        heldForImages(hold).map((held) => ({ accountId, run: null, ...held })),
      );
      return [...(await all(ofBatches)), ...realtime].filter(({ microUsd }) => microUsd > 0);
    },
  };
}

export const accountRepositories = (session: SqlSession) => ({
  accounts: accountRepository(session),
  keys: keyRepository(session),
  ledger: ledgerRepository(session),
  budgets: budgetRepository(session),
  idempotency: idempotencyRepository(session),
});
