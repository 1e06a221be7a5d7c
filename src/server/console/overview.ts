import type { Request, RequestHandler, Response } from "express";
import type { RequestLine } from "../../contract/activity.ts";
import { type OverviewObject, providerObject } from "../../contract/console-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Feed } from "../../domain/feed.ts";
import { reportProviders, splitTroubles } from "../../domain/health/calls.ts";
import { microsToNumber } from "../../kernel/money.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { seldom } from "../monitoring/metrics.ts";

const REQUESTS = 100;

/** Lets only the key of `credentials.json` through: it sees what all keys do. */
export function requireOwner({ isOwnerKey }: Pick<ApiDeps, "isOwnerKey">): RequestHandler {
  return (_request, response, next) => {
    if (!isOwnerKey(callerOf(response).key.id)) throw new ImgbatchError("OWNER_ONLY");
    next();
  };
}

/** `GET /v1/console/service`: providers, queue, disk, and the last requests of all keys. */
export function overview(deps: ApiDeps) {
  const lastRequests = rememberRequests(deps.feed);
  const countBatches = seldom(() => deps.stores.read.batches.countByStatus());
  return async (_request: Request, response: Response): Promise<void> => {
    const { stores, health, clock, facts } = deps;
    const { running, slots, isPaused } = await deps.queueOfAll();
    const pending = await stores.read.batches.pendingItemCount();
    const reports = await reportProviders(health.providers, {
      read: stores.read,
      nowMs: clock.nowMs(),
      troublesOf: (provider) => health.troublesOf(provider),
    });
    const view: OverviewObject = {
      object: "service.overview",
      data_directory: facts.dataDirectory,
      started_at: Math.floor(facts.startedAtMs / 1000),
      disk_free_bytes: await deps.freeDiskBytes().catch(() => null),
      queue: { running, waiting: Math.max(0, pending - running), concurrency: slots, paused: isPaused },
      money: await moneyOfAll(deps),
      batches: await countBatches(),
      providers: reports.map((report) => providerObject({ ...report, ...splitTroubles(report) })),
      requests: lastRequests().map(({ atMs, durationMs, ...line }) => ({
        at: atMs / 1000,
        duration_ms: durationMs,
        ...line,
      })),
    };
    response.json(view);
  };
}

async function moneyOfAll({ stores, health }: ApiDeps): Promise<OverviewObject["money"]> {
  // The sum of real money must not hide behind play money.
  const all = await stores.read.accounts.list();
  const isDrawing = health.providers.every(({ upstream }) => upstream === undefined);
  const isPlay = isDrawing && all.length > 0 && all.every((account) => account.isPlay);
  const accounts = all.filter((account) => isPlay || !account.isPlay);
  return {
    balance: microsToNumber(accounts.reduce((sum, each) => sum + each.balanceMicroUsd, 0)),
    held: microsToNumber(accounts.reduce((sum, each) => sum + each.heldMicroUsd, 0)),
    play_money: isPlay,
  };
}

/** `POST` and `DELETE /v1/console/pause`: the workers begin no work; they begin work again. */
export function setPaused(isPaused: boolean) {
  return (deps: ApiDeps) =>
    (_request: Request, response: Response): void => {
      deps.setPaused(isPaused);
      response.status(204).end();
    };
}

/** Returns a function that returns the last requests, the newest first. The feed ends with the service. */
function rememberRequests(feed: Feed): () => RequestLine[] {
  const lines: RequestLine[] = [];
  feed.subscribe((event) => {
    if (event.type !== "request") return;
    lines.unshift(event.line);
    lines.length = Math.min(lines.length, REQUESTS);
  });
  return () => lines;
}
