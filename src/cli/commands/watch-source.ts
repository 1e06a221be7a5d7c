import type { Batch } from "../../client/answers.ts";
import { cancelBatch, deleteOutputs, deleteRecord, listItems } from "../../client/batches.ts";
import { getContent } from "../../client/download.ts";
import { BATCH_STATUSES, type BatchStatus, ITEM_STATUSES } from "../../contract/statuses.ts";
import { jobsText, waitingText } from "../../contract/waiting.ts";
import type { Fact } from "../../dashboard/events.ts";
import type { BatchRow } from "../../dashboard/model.ts";
import { openFolder } from "../../dashboard/open-folder.ts";
import type { DashboardSource, Intent } from "../../dashboard/source.ts";
import type { Http } from "../../http/http.ts";
import { formatSize } from "../../kernel/text.ts";

/** The things that the live view of `watch` needs from its command. */
export interface LiveWatch {
  http: Http;
  url: string;
  nowMs(): number;
  /** The directory of a batch's run; null if none is known. */
  directoryOf(batchId: string): string | null;
  signal: AbortSignal;
}

/**
 * The dashboard's source over HTTP. It shows each batch as last read, and sends the person's requests to the service.
 * Facts that the API does not report (sizes, history, the queue) are left out.
 */
export function createHttpDashboardSource(watch: LiveWatch): { view: WatchView; source: DashboardSource } {
  const { http, signal } = watch;
  let batches: readonly Batch[] = [];
  let tell: (fact: Fact) => void = () => {};
  let openDetail: string | null = null;
  const seen = new Map<string, number>();

  const showAll = () => {
    tell({ type: "batches", rows: batches.map((batch) => toRow(batch, watch.nowMs())) });
    tell({ type: "images", count: newImages(batches, seen), atMs: watch.nowMs() });
    const pending = batches.map(({ isDone, itemCount, successCount, failCount }) =>
      isDone ? 0 : (itemCount ?? 0) - successCount - failCount,
    );
    const isPlay = batches.length > 0 && batches.every((batch) => batch.isPlay);
    const waitingItems = pending.reduce((sum, count) => sum + count, 0);
    tell({ type: "vitals", vitals: { waitingItems, isPlay } });
  };
  const showDetail = async (batchId: string) => {
    const items = await listItems(http, batchId, signal);
    const rows = items.map(({ customId, status, promptPreview, error }) => ({
      customId,
      status: ITEM_STATUSES.find((known) => known === status) ?? ("pending" as const),
      prompt: promptPreview ?? "",
      error: error === null ? null : `${error.code}: ${error.message}`,
      sizeBytes: null,
      costMicroUsd: null,
    }));
    tell({ type: "detail", detail: { batchId, items: rows, history: null } });
  };
  const replace = (changed: Batch) => {
    batches = batches.map((batch) => (batch.id === changed.id ? changed : batch));
    showAll();
  };
  const perform = async (intent: Intent): Promise<void> => {
    switch (intent.type) {
      case "open-detail":
        openDetail = intent.batchId;
        return showDetail(intent.batchId);
      case "close-detail":
        openDetail = null;
        return;
      case "show-picture":
        return showPicture(http, intent, tell, signal);
      case "cancel":
        replace(await cancelBatch(http, intent.batchId, signal));
        return tell({
          type: "message",
          text: "Cancelled. Finished images stay, and are billed unless they are drawn.",
        });
      case "delete-outputs":
        replace(await deleteOutputs(http, intent.batchId, signal));
        return tell({ type: "message", text: "The image files are deleted; the record stays." });
      case "delete-record":
        await deleteRecord(http, intent.batchId, signal);
        batches = batches.filter((batch) => batch.id !== intent.batchId);
        return tell({ type: "batch-gone", id: intent.batchId });
      case "open-folder": {
        const directory = intent.batchId === null ? null : watch.directoryOf(intent.batchId);
        const text =
          directory === null ? "The directory of this batch is unknown here." : await openFolder(directory);
        return tell({ type: "message", text });
      }
    }
  };
  return {
    view: {
      show: (now) => {
        batches = now;
        showAll();
        const open = now.find((batch) => batch.id === openDetail);
        if (open !== undefined) showDetail(open.id).catch(() => {});
      },
      trouble: (text) => tell({ type: "message", text, isError: true }),
      close: () => {},
    },
    source: {
      abilities: {
        pause: false,
        retry: false,
        openFolder: true,
        openConsole: false,
        picture: true,
        activity: false,
        itemFacts: false,
        endsService: false,
      },
      start: (listener) => {
        tell = listener;
        tell({
          type: "service",
          facts: { url: watch.url, dataDirectory: null, providers: null, startedAtMs: null },
        });
        showAll();
        return { stop: () => {} };
      },
      perform,
    },
  };
}

/** Counts the images made since the last call. Images of a new batch do not count. */
function newImages(batches: readonly Batch[], seen: Map<string, number>): number {
  let count = 0;
  for (const { id, successCount } of batches) {
    count += Math.max(0, successCount - (seen.get(id) ?? successCount));
    seen.set(id, successCount);
  }
  return count;
}

function toRow(batch: Batch, nowMs: number): BatchRow {
  const known = BATCH_STATUSES.find((status) => status === batch.status);
  const status: BatchStatus = known ?? (batch.isDone ? "completed" : "running");
  return {
    id: batch.id,
    name: batch.name ?? batch.id,
    status,
    ...(known === undefined ? { statusText: batch.status } : {}),
    model: batch.model ?? "",
    provider: batch.provider,
    source: batch.source,
    itemCount: batch.itemCount ?? 0,
    successCount: batch.successCount,
    failCount: batch.failCount,
    estimatedMicroUsd: batch.estimatedCostMicroUsd,
    costMicroUsd: batch.actualCostMicroUsd,
    isPlay: batch.isPlay,
    createdAtMs: batch.createdAtMs ?? nowMs,
    endedAtMs: null,
    error: batch.error === null ? null : `${batch.error.code}: ${batch.error.message}`,
    waiting: batch.waiting && waitingText(batch.waiting),
    jobs: jobsText(batch.jobs, nowMs),
  };
}

async function showPicture(
  http: Http,
  intent: Extract<Intent, { type: "show-picture" }>,
  tell: (fact: Fact) => void,
  signal: AbortSignal,
): Promise<void> {
  const { batchId, customId, box } = intent;
  const [{ data, contentType }, { toPixels }] = await Promise.all([
    getContent(http, batchId, customId, 0, signal),
    import("../../imaging/thumbnail.ts"),
  ]);
  const pixels = await toPixels(data, box);
  const caption = `${contentType ?? ""} ${formatSize(data.length)}`.trim();
  tell({ type: "picture", picture: { batchId, customId, ...pixels, caption } });
}

/** Shows batches while they run: as lines in a log, or as a dashboard on a terminal. */
export interface WatchView {
  /** Called with all batches each time one of them was read. */
  show(batches: readonly Batch[]): void;
  /** Called with a description of each failure that is being waited out. */
  trouble(text: string): void;
  /** The end: every batch has ended, or the command was stopped. */
  close(): void;
}
