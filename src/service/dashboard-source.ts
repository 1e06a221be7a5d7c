import { isTerminal } from "../contract/statuses.ts";
import type { Fact } from "../dashboard/events.ts";
import type { ItemRow, ServiceFacts } from "../dashboard/model.ts";
import { openFolder } from "../dashboard/open-folder.ts";
import type { DashboardSource, Intent } from "../dashboard/source.ts";
import type { Feed } from "../domain/feed.ts";
import type { BlobStore } from "../domain/ports/blob-store.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../domain/records.ts";
import type { toPixels } from "../imaging/thumbnail.ts";
import { openPath } from "../processes/programs.ts";
import { changedRows, firstRows, type RowSource, wordsOf } from "./dashboard-rows.ts";
import { type TroubleSource, troubleReporter } from "./provider-troubles.ts";
import { showPicture } from "./show-picture.ts";

const DISK_EVERY_MS = 10_000;
/** How often batches at work are read again that another process may have changed. */
const LOOK_EVERY_MS = 2000;
/** A person could not read more. */
const FAILURES_A_FRAME = 10;

/** Everything that the live view of a service in this process uses. */
export interface DashboardSourceDeps extends RowSource {
  blobs: BlobStore;
  feed: Feed;
  facts: ServiceFacts;
  health: TroubleSource;
  freeDiskBytes(): Promise<number>;
  /** Makes a picture small. It waits in turn with all other images that the service decodes. */
  toPixels(...[bytes, box]: Parameters<typeof toPixels>): ReturnType<typeof toPixels>;
  /** Whether other processes change batches, too, which the feed may not report. */
  isShared: boolean;
  /** The load of this process now. `paid`: the requests that a stop waits for. */
  queue(): { running: number; paid: number; slots: number; isPaused: boolean };
  /** The load of all workers now. */
  queueOfAll(): Promise<{ running: number; slots: number; isPaused: boolean }>;
  /** Asks all workers to begin no work, or to begin work again. */
  setPaused(isPaused: boolean): void;
  /** Makes a link that signs the owner of this machine in to the web console, once; null where there is no console. */
  signInLink: (() => Promise<string>) | null;
  cancel(batchId: string): Promise<void>;
  /** Makes a new batch of the failed items. Returns its name and how many items it has. */
  retry(batchId: string): Promise<{ name: string; itemCount: number }>;
  deleteOutputs(batchId: string): Promise<void>;
  deleteRecord(batchId: string): Promise<void>;
}

/**
 * The source of the dashboard of `serve`. Listens to the service's feed, and reads each changed batch once a frame,
 * however often it changed.
 */
export function createDashboardSource(deps: DashboardSourceDeps): DashboardSource {
  const { stores, feed } = deps;
  let tell: (fact: Fact) => void = () => {};
  let openDetail: string | null = null;

  const showDetail = async (batchId: string) => {
    const detail = await detailOf(stores, batchId);
    if (detail !== null && openDetail === batchId) tell({ type: "detail", detail });
  };
  const actions: { [T in Intent["type"]]: (intent: Extract<Intent, { type: T }>) => Promise<void> | void } = {
    "open-detail": async ({ batchId }) => {
      openDetail = batchId;
      await showDetail(batchId);
    },
    "close-detail": () => {
      openDetail = null;
    },
    "show-picture": (intent) => showPicture(deps, intent, tell),
    cancel: async ({ batchId }) => {
      await deps.cancel(batchId);
      tell({
        type: "message",
        text: "Cancelled. Finished images stay, and are billed unless they are drawn.",
      });
    },
    retry: async ({ batchId }) => {
      const { name, itemCount } = await deps.retry(batchId);
      tell({
        type: "message",
        text: `Retrying ${itemCount} ${itemCount === 1 ? "image" : "images"}, as a new batch “${name}”.`,
      });
    },
    "delete-outputs": async ({ batchId }) => {
      await deps.deleteOutputs(batchId);
      tell({ type: "message", text: "The image files are deleted; the record stays." });
    },
    "delete-record": async ({ batchId }) => {
      await deps.deleteRecord(batchId);
      tell({ type: "message", text: "The record is deleted; its files go when their time comes." });
    },
    "open-folder": async () => {
      tell({ type: "message", text: await openFolder(deps.facts.dataDirectory ?? ".") });
    },
    "open-console": async () => {
      const link = await deps.signInLink?.();
      if (link === undefined) return;
      const isOpen = await openPath(link);
      tell({ type: "message", text: isOpen ? "Opened the web console in the browser." : `Open ${link}` });
    },
    pause: ({ isPaused }) => {
      deps.setPaused(isPaused);
      tell({ type: "vitals", vitals: { isPaused } });
    },
    quit: () => {},
  };

  return {
    abilities: {
      pause: true,
      retry: true,
      openFolder: true,
      openConsole: deps.signInLink !== null,
      picture: true,
      activity: true,
      itemFacts: true,
      endsService: true,
    },
    start: (listener) => {
      tell = listener;
      const changed = new Set<string>();
      /** The batches at work, and why each waits and its jobs, as they were last shown. The feed does not report these. */
      const atWork = new Map<string, { batch: BatchRecord; words: string }>();
      /** Batches whose records were deleted since the last read began: rows that were read of them are not shown. */
      const gone = new Set<string>();
      let showing: Promise<void> | null = null;
      let hasBegun = false;
      let hasMoved = true;
      let failures: { batchId: string; customId: string }[] = [];
      let images = 0;
      let diskAtMs = Number.NEGATIVE_INFINITY;
      let lookedAtMs = Number.NEGATIVE_INFINITY;
      const unsubscribe = feed.subscribe((event) => {
        if (event.type === "request") return tell({ type: "request", line: event.line });
        if (event.type === "log") return tell({ type: "log", line: event.line });
        if (event.type === "batch-gone") {
          changed.delete(event.batchId);
          gone.add(event.batchId);
          atWork.delete(event.batchId);
          return tell({ type: "batch-gone", id: event.batchId });
        }
        changed.add(event.batchId);
        hasMoved = true;
        if (event.type === "elsewhere") {
          images += event.images;
          for (const customId of event.failed) failures.push({ batchId: event.batchId, customId });
        }
        if (event.type === "item" && event.status === "success") images++;
        if (event.type === "item" && event.status === "failed") failures.push(event);
      });
      tell({ type: "service", facts: deps.facts });
      const reportTroubles = troubleReporter(deps.health, listener);
      const show = async () => {
        reportTroubles();
        if (images > 0) tell({ type: "images", count: images, atMs: deps.clock.nowMs() });
        images = 0;
        const nowMs = deps.clock.nowMs();
        const isOld = deps.isShared && Math.abs(nowMs - lookedAtMs) >= LOOK_EVERY_MS;
        if (isOld) lookedAtMs = nowMs;
        for (const [id, { batch, words }] of atWork)
          if (isOld || (await wordsOf(deps, batch)) !== words) changed.add(id);
        const ids = [...changed];
        changed.clear();
        gone.clear();
        const failed = failures.slice(-FAILURES_A_FRAME);
        failures = [];
        const isMoved = hasMoved;
        hasMoved = false;
        const isDetailOld = openDetail !== null && ids.includes(openDetail);
        const found = hasBegun ? await changedRows(deps, ids) : await firstRows(deps);
        const shown = found.filter(({ batch }) => !gone.has(batch.id));
        for (const { row, batch } of shown)
          if (isTerminal(row.status)) atWork.delete(batch.id);
          else atWork.set(batch.id, { batch, words: JSON.stringify([row.waiting, row.jobs]) });
        const rows = shown.map(({ row }) => row);
        if (rows.length > 0 || !hasBegun) tell({ type: "batches", rows });
        hasBegun = true;
        for (const failure of failed) await tellFailure(deps, failure, tell);
        if (isDetailOld && openDetail !== null) await showDetail(openDetail);
        if (isMoved) {
          const pendingItems = await stores.read.batches.pendingItemCount();
          const money = await moneyOf(deps);
          const { running, slots, isPaused } = await deps.queueOfAll();
          const waitingItems = Math.max(0, pendingItems - running);
          tell({
            type: "vitals",
            vitals: { ...money, waitingItems, runningItems: running, concurrency: slots, isPaused },
          });
        }
        if (Math.abs(nowMs - diskAtMs) < DISK_EVERY_MS) return;
        diskAtMs = nowMs;
        deps.freeDiskBytes().then(
          (freeDiskBytes) => tell({ type: "vitals", vitals: { freeDiskBytes } }),
          () => {},
        );
      };
      const flush = () => {
        showing ??= show().finally(() => {
          showing = null;
        });
        return showing;
      };
      flush().catch(() => {});
      return { flush, stop: unsubscribe };
    },
    perform: async (intent) => {
      await (actions[intent.type] as (intent: Intent) => Promise<void> | void)(intent);
    },
  };
}

/** A line among the errors for an image that could not be made. */
async function tellFailure(
  { stores, clock }: DashboardSourceDeps,
  { batchId, customId }: { batchId: string; customId: string },
  tell: (fact: Fact) => void,
): Promise<void> {
  const item = await stores.read.items.byCustomId(batchId, customId);
  if (item?.error == null) return;
  const name = (await stores.read.batches.byId(batchId))?.taskName ?? batchId;
  const text = `${customId} failed, ${item.error.code}: ${item.error.message} (“${name}”)`;
  tell({ type: "log", line: { atMs: clock.nowMs(), level: "warn", text } });
}

async function moneyOf({
  stores,
  health,
}: DashboardSourceDeps): Promise<{ balanceMicroUsd: number; heldMicroUsd: number; isPlay: boolean }> {
  // The sum of real money must not hide behind play money.
  const all = await stores.read.accounts.list();
  const isDrawing = health.providers.every(({ upstream }) => upstream === undefined);
  const isPlay = isDrawing && all.length > 0 && all.every((account) => account.isPlay);
  const accounts = all.filter((account) => isPlay || !account.isPlay);
  const sum = (pick: (account: (typeof accounts)[number]) => number) =>
    accounts.reduce((total, account) => total + pick(account), 0);
  return { balanceMicroUsd: sum((a) => a.balanceMicroUsd), heldMicroUsd: sum((a) => a.heldMicroUsd), isPlay };
}

async function detailOf(stores: Stores, batchId: string) {
  return stores.snapshot(async (read) => {
    const batch = await read.batches.byId(batchId);
    if (batch === null) return null;
    const outputs = new Map<number, OutputRecord[]>();
    for (const output of await read.outputs.ofBatch(batchId)) {
      outputs.set(output.itemId, [...(outputs.get(output.itemId) ?? []), output]);
    }
    const items = await read.items.page(batchId, { afterPosition: -1, limit: batch.itemCount });
    return {
      batchId,
      items: items.map((item) => toItemRow(item, outputs.get(item.id) ?? [], batch.price.imageMicroUsd)),
      history: (await read.batches.events(batchId)).map(({ to, atMs }) => ({ status: to, atMs })),
    };
  });
}

function toItemRow(item: ItemRecord, outputs: readonly OutputRecord[], imageMicroUsd: number): ItemRow {
  const sizeBytes = outputs.reduce((sum, output) => sum + output.sizeBytes, 0);
  return {
    customId: item.customId,
    status: item.status,
    prompt: item.prompt,
    error: item.error === null ? null : `${item.error.code}: ${item.error.message}`,
    sizeBytes: outputs.length === 0 ? null : sizeBytes,
    costMicroUsd: item.status === "success" ? (item.priceMicroUsd ?? imageMicroUsd) : null,
  };
}
