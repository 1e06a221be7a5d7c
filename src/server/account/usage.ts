import type { Request, Response } from "express";
import type { ListEnvelope } from "../../contract/batch-api.ts";
import type { UsageObject } from "../../contract/console-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { invalidQuery } from "../query/query.ts";
import { readInstant } from "../query/query-instant.ts";
import { payingAccounts } from "./accounts.ts";

const DAY_SECONDS = 86_400;

/** `GET /v1/usage`: what the key paid for, by day and model, oldest first; by default of the last 30 days. */
export function usage({ stores, clock }: Pick<ApiDeps, "stores" | "clock">) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: apiKeyId, accountId } = callerOf(response).key;
    const lastSecond = readInstant(request, "to")?.lastSecond ?? Math.floor(clock.nowMs() / 1000);
    const today = lastSecond - (lastSecond % DAY_SECONDS);
    const from = readInstant(request, "from")?.firstSecond ?? today - 29 * DAY_SECONDS;
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
    const envelope: ListEnvelope<UsageObject> = { object: "list", data, has_more: false, next_cursor: null };
    response.json(envelope);
  };
}
