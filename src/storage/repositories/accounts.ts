import type { Repositories } from "../../domain/ports/stores.ts";
import type { AccountRecord, IdempotencyRecord, LedgerEntry } from "../../domain/records.ts";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { insertRows } from "./rows.ts";

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

const APPEND_ENTRY = prepared((build, entry: Values<Omit<LedgerEntry, "seq">>) => {
  const { requestId, accountId, batchId, kind, amountMicroUsd, createdAtMs } = entry;
  const { balanceChangeMicroUsd, heldChangeMicroUsd } = entry;
  return build
    .insertInto("ledger_entries")
    .values({
      requestId,
      accountId,
      batchId,
      kind,
      amountMicroUsd,
      createdAtMs,
      balanceChangeMicroUsd,
      heldChangeMicroUsd,
    })
    .onConflict((conflict) => conflict.column("requestId").doNothing());
});

function ledgerRepository({ build, first, all, changes }: SqlSession): Repositories["ledger"] {
  const entries = () => build.selectFrom("ledger_entries").selectAll();
  return {
    append: async (entry) => ({ isNew: (await changes(APPEND_ENTRY(build, entry))) === 1 }),
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

const INSERT_IDEMPOTENCY_KEY = prepared(
  (build, { apiKeyId, key, requestHash, batchId, createdAtMs }: Values<IdempotencyRecord>) =>
    build
      .insertInto("idempotency_keys")
      .values({ apiKeyId, key, requestHash, batchId, createdAtMs })
      .onConflict((on) => on.columns(["apiKeyId", "key"]).doNothing()),
);

function idempotencyRepository({ build, first, run, changes }: SqlSession): Repositories["idempotency"] {
  return {
    find: (apiKeyId, key) => first(FIND_IDEMPOTENCY_KEY(build, { apiKeyId, key })),
    removeOfRecordsDeletedBefore: async (ms) => {
      const gone = build.selectFrom("batches").select("id").where("recordDeletedAtMs", "<", ms);
      return changes(build.deleteFrom("idempotency_keys").where("batchId", "in", gone));
    },
    insert: async (claim) => ({ isNew: (await changes(INSERT_IDEMPOTENCY_KEY(build, claim))) === 1 }),
    replace: async ({ apiKeyId, key, ...facts }) => {
      const row = build.insertInto("idempotency_keys").values({ apiKeyId, key, ...facts });
      await run(row.onConflict((on) => on.columns(["apiKeyId", "key"]).doUpdateSet(facts)));
    },
  };
}

export const accountRepositories = (session: SqlSession) => ({
  accounts: accountRepository(session),
  keys: keyRepository(session),
  ledger: ledgerRepository(session),
  idempotency: idempotencyRepository(session),
});
