import type { ListEnvelope } from "../../contract/batch-api.ts";
import type { AccountObject, LedgerEntryObject, UsageObject } from "../../contract/console-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { PATHS } from "../../contract/routes.ts";
import { payingAccounts } from "../../domain/accounts.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { AccountRecord, LedgerEntry } from "../../domain/records.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { authenticate, bearerErrors, bearerToken, callerOf, keyOfCredential } from "../http/authenticate.ts";
import { onEnded } from "../http/exchange.ts";
import { invalidQuery, pagingBy, readQuery } from "../http/parameters.ts";
import type { Surface } from "../operation.ts";

function limitsView(limits: Limits): AccountObject["limits"] {
  return {
    items_per_batch: limits.itemsPerBatch,
    output_images_per_batch: limits.outputImagesPerBatch,
    output_count_per_item: limits.outputCountPerItem,
    prompt_chars: limits.promptChars,
    reference_image_bytes: limits.referenceImageBytes,
    reference_images_per_batch: limits.referenceImagesPerBatch,
    reference_bytes_per_batch: limits.referenceBytesPerBatch,
    create_body_bytes: limits.createBodyBytes,
    zip_items: limits.zipItems,
  };
}

function moneyOf({ balanceMicroUsd, heldMicroUsd }: AccountRecord) {
  return { balance: microsToNumber(balanceMicroUsd), held: microsToNumber(heldMicroUsd) };
}

const DAY_SECONDS = 86_400;

const paging = pagingBy("l", ["seq"]);

async function withBalances(
  now: Repositories,
  accounts: readonly AccountRecord[],
  entries: readonly LedgerEntry[],
  own: ReadonlyMap<string, string>,
): Promise<{ seq: number; view: LedgerEntryObject }[]> {
  const newest = entries[0]?.seq ?? 0;
  const balances = new Map<string, { microUsd: number; isPlay: boolean }>();
  for (const { id, balanceMicroUsd, isPlay } of accounts) {
    balances.set(id, { microUsd: balanceMicroUsd - (await now.ledger.changeAfter(id, newest)), isPlay });
  }
  return entries.map((entry) => {
    const { microUsd, isPlay } = balances.get(entry.accountId) ?? { microUsd: 0, isPlay: false };
    balances.set(entry.accountId, { microUsd: microUsd - entry.balanceChangeMicroUsd, isPlay });
    return { seq: entry.seq, view: entryView(entry, { microUsd, isPlay }, own) };
  });
}

function entryView(
  entry: LedgerEntry,
  { microUsd, isPlay }: { microUsd: number; isPlay: boolean },
  own: ReadonlyMap<string, string>,
): LedgerEntryObject {
  const { kind, batchId } = entry;
  const name = own.get(batchId ?? "") ?? null;
  return {
    kind,
    amount: microsToNumber(entry.amountMicroUsd),
    balance_change: microsToNumber(entry.balanceChangeMicroUsd),
    held_change: microsToNumber(entry.heldChangeMicroUsd),
    balance: microsToNumber(microUsd),
    play_money: isPlay,
    batch_id: name === null ? null : batchId,
    batch_name: name,
    created_at: toSeconds(entry.createdAtMs),
  };
}

/** Returns the names of those batches of these entries that the key made, by id. */
async function ownBatches(
  now: Repositories,
  apiKeyId: string,
  entries: readonly LedgerEntry[],
): Promise<Map<string, string>> {
  const own = new Map<string, string>();
  for (const id of new Set(entries.flatMap(({ batchId }) => batchId ?? []))) {
    const batch = await now.batches.byId(id);
    if (batch?.apiKeyId === apiKeyId) own.set(id, batch.taskName);
  }
  return own;
}

async function isAccepted(deps: ApiDeps, credential: string | null): Promise<boolean> {
  try {
    await keyOfCredential(deps, credential);
    return true;
  } catch (error) {
    if (error instanceof ImgbatchError) return false;
    throw error;
  }
}

/** The money of a key, and what changes for it. */
export const accountApi: Surface = {
  tag: "account",
  vendor: null,
  prefix: PATHS.account,
  operations: [
    {
      id: "getAccount",
      method: "get",
      path: PATHS.account,
      summary: "Balance and held money of the key's account, and the limits of one request",
      answers: { 200: { description: "The account.", schema: "Account" } },
      handler:
        ({ stores, limits }) =>
        async (_request, response) => {
          const { key, scope } = callerOf(response);
          const { name, prefix, accountId } = key;
          const [own, real] = await stores.snapshot((now) => payingAccounts(now, accountId));
          const view: AccountObject = {
            object: "account",
            ...moneyOf(own),
            play_money: own.isPlay,
            real_money: real ? moneyOf(real) : null,
            key: { name, prefix },
            owner: scope.isOwner,
            limits: limitsView(limits),
          };
          response.json(view);
        },
    },
    {
      id: "getUsage",
      method: "get",
      path: PATHS.usage,
      summary: "What this key paid for, by day and model",
      parameters: ["UsageFrom", "UsageTo"],
      answers: { 200: { description: "A line for each day and model, oldest first.", schema: "UsageList" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler:
        ({ stores, clock }) =>
        async (request, response) => {
          const { id: apiKeyId, accountId } = callerOf(response).key;
          const lastSecond = readQuery(request, "UsageTo")?.lastSecond ?? Math.floor(clock.nowMs() / 1000);
          const today = lastSecond - (lastSecond % DAY_SECONDS);
          const from = readQuery(request, "UsageFrom")?.firstSecond ?? today - 29 * DAY_SECONDS;
          if (from > lastSecond) throw invalidQuery("from", "must not be after `to`");
          const most = FIXED_LIMITS.usageDays;
          if (lastSecond - from > most * DAY_SECONDS)
            throw invalidQuery("from", `at most ${most} days before \`to\``);
          const time = { fromMs: from * 1000, beforeMs: (lastSecond + 1) * 1000 };
          const { days, played } = await stores.snapshot(async (now) => {
            const accounts = await payingAccounts(now, accountId);
            const accountIds = accounts.map(({ id }) => id);
            const played = new Set(accounts.flatMap(({ id, isPlay }) => (isPlay ? [id] : [])));
            return { days: await now.usage.byDay({ apiKeyId, accountIds, ...time }), played };
          });
          const data = days.map(
            ({ dayMs, model, accountId, imageCount, amountMicroUsd }): UsageObject => ({
              day: new Date(dayMs).toISOString().slice(0, 10),
              model,
              image_count: imageCount,
              cost: microsToNumber(amountMicroUsd),
              play_money: played.has(accountId),
            }),
          );
          const envelope: ListEnvelope<UsageObject> = {
            object: "list",
            data,
            has_more: false,
            next_cursor: null,
          };
          response.json(envelope);
        },
    },
    {
      id: "getLedger",
      method: "get",
      path: PATHS.ledger,
      summary: "Movements of money of the key's account, newest first",
      parameters: ["LedgerLimit", "Cursor"],
      answers: { 200: { description: "A page of entries.", schema: "LedgerList" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler:
        ({ stores }) =>
        async (request, response) => {
          const limit = readQuery(request, "LedgerLimit");
          const { after, offset = 0 } = paging.start(request);
          const { id: apiKeyId, accountId } = callerOf(response).key;
          const lines = await stores.snapshot(async (now) => {
            const accounts = await payingAccounts(now, accountId);
            const accountIds = accounts.map(({ id }) => id);
            const page = { accountIds, beforeSeq: after?.seq, offset, limit: limit + 1 };
            const entries = await now.ledger.page(page);
            const own = await ownBatches(now, apiKeyId, entries);
            return withBalances(now, accounts, entries, own);
          });
          response.json(paging.page(lines, limit, ({ view }) => view));
        },
    },
    {
      id: "streamEvents",
      method: "get",
      path: PATHS.events,
      summary:
        "What changes for this key, as server-sent events: ids alone, each batch at most once a second",
      answers: {
        200: {
          description: "Events `ready`, `batch`, `batch_deleted` and `account`, until the service stops.",
          bytes: ["text/event-stream"],
        },
      },
      handler: (deps) => (request, response) => {
        response.setHeader("Content-Type", "text/event-stream");
        response.setHeader("Cache-Control", "no-store");
        // Without this header, nginx collects events and sends them late.
        response.setHeader("X-Accel-Buffering", "no");
        if (request.method === "HEAD") return void response.end();
        const credential = bearerToken(request);
        const close = deps.events.open({
          caller: callerOf(response),
          write: (text) => {
            if (response.writableNeedDrain) response.destroy();
            else response.write(text);
          },
          end: () => response.end(),
          isAllowed: () => isAccepted(deps, credential),
        });
        onEnded(response, close);
      },
    },
  ],
  credential: { schemes: ["apiKey"], authenticate, errors: bearerErrors },
};
