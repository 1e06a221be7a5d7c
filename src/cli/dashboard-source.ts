import type { Batch, BatchItem } from "../client/answers.ts";
import {
  cancelBatch,
  deleteOutputs,
  deleteRecord,
  getBatch,
  goOn,
  listBatches,
  listItems,
  retryBatch,
} from "../client/batches.ts";
import { getContent } from "../client/download.ts";
import { followEvents } from "../client/poll.ts";
import type { LogLine, RequestLine } from "../contract/activity.ts";
import type { ItemObject } from "../contract/batch-api.ts";
import type { OverviewObject } from "../contract/console-api.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { routes } from "../contract/routes.ts";
import { type BatchStatus, ITEM_STATUSES } from "../contract/statuses.ts";
import type {
  BatchDetail,
  DashboardSource,
  Fact,
  Intent,
  ItemRow,
  ServiceFacts,
  Vitals,
} from "../dashboard/model.ts";
import type { Http } from "../http/http.ts";
import type { Clock } from "../kernel/clock.ts";
import { numberToMicros } from "../kernel/money.ts";
import { formatSize } from "../kernel/text.ts";
import { openPath } from "../processes/programs.ts";

/** How often batches at work and the whole service are read again: not every change of theirs is an event. */
const REFRESH_MS = 2000;

/** The service of this process, for its live view. `http` of the source sees the batches of all keys then. */
interface OwnService {
  facts: Omit<ServiceFacts, "url">;
  /** Makes a link that signs the person in to the web console; null where there is no console. */
  signInLink: (() => Promise<string>) | null;
  /** Listens to the requests that were answered and to the lines of the log. Returns the function that stops it. */
  lines(
    listener: (line: { type: "request"; line: RequestLine } | { type: "log"; line: LogLine }) => void,
  ): () => void;
}

interface SourceOptions {
  http: Http;
  url: string;
  clock: Clock;
  /** Null for batches of any other service, which are shown as `show` gets them. */
  own: OwnService | null;
  /** Lets a stopped batch go on for as long as the command runs. Default: the service is asked to, for good. */
  goOn?: ((batchId: string) => Promise<void>) | undefined;
  /** The directory of a batch's files; null if none is known. */
  directoryOf(batchId: string | null): string | null;
  signal: AbortSignal;
}

interface HttpSource extends DashboardSource {
  /** Shows batches as they were read. */
  show(batches: readonly Batch[]): void;
  /** Shows a failure that is being waited out. */
  trouble(text: string): void;
}

/** The source of the dashboard over HTTP: for `serve` it follows the whole service, for `watch` it shows given batches. */
export function createDashboardSource(options: SourceOptions): HttpSource {
  const { http, url, clock, own, signal, directoryOf } = options;
  const startMs = clock.nowMs();
  const batches = new Map<string, Batch>();
  const madeOf = new Map<string, number>();
  let tell: (fact: Fact) => void = () => {};
  let openDetail: string | null = null;
  let items: readonly BatchItem[] = [];

  const say = (text: string) => tell({ type: "message", text });
  const trouble = (text: string) => tell({ type: "message", text, isError: true });
  const forget = (id: string) => {
    batches.delete(id);
    tell({ type: "batch-gone", id });
  };
  const show = (read: readonly Batch[]) => {
    let count = 0;
    for (const batch of read) {
      batches.set(batch.id, batch);
      // Images of a batch that was there before do not count when it is seen first.
      const isNew = batch.createdAtMs !== null && batch.createdAtMs >= startMs;
      count += Math.max(0, batch.successCount - (madeOf.get(batch.id) ?? (isNew ? 0 : batch.successCount)));
      madeOf.set(batch.id, batch.successCount);
    }
    tell({ type: "batches", batches: read });
    if (count > 0) tell({ type: "images", count, atMs: clock.nowMs() });
    if (own === null) tell({ type: "vitals", vitals: vitalsOf([...batches.values()]) });
    const open = read.find(({ id }) => id === openDetail);
    if (open !== undefined) showDetail(open.id).catch(() => {});
  };
  const showDetail = async (batchId: string) => {
    const include = own === null ? undefined : (["prompt", "images"] as const);
    const [listed, batch] = await Promise.all([
      listItems(http, batchId, signal, undefined, include),
      own === null ? null : getBatch(http, batchId, { signal }),
    ]);
    if (openDetail !== batchId) return;
    items = listed;
    const detail = { batchId, items: items.map(toItemRow), history: historyOf(batch?.batch) };
    tell({ type: "detail", detail });
  };
  const showPicture = async ({ batchId, customId, box }: Extract<Intent, { type: "show-picture" }>) => {
    const [{ data, contentType }, { toPixels }] = await Promise.all([
      getContent(http, batchId, customId, 0, { signal, isEarly: true }),
      import("../imaging/thumbnail.ts"),
    ]);
    const pixels = await toPixels(data, box);
    const [image] = imagesOf(items.find((item) => item.customId === customId));
    const facts = [image && `${image.width}×${image.height}`, image?.mime_type ?? contentType];
    const caption = [...facts, formatSize(data.length)].filter(Boolean).join(" ");
    tell({ type: "picture", picture: { batchId, customId, ...pixels, caption } });
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
        return showPicture(intent);
      case "cancel": {
        const batch = await cancelBatch(http, intent.batchId, signal);
        show([batch]);
        return say(
          batch.isDone
            ? "Cancelled. Finished images stay, and are billed unless they are drawn."
            : "Nothing more is sent. What has left is awaited, and its images stay.",
        );
      }
      case "go-on":
        await (options.goOn?.(intent.batchId) ?? goOn(http, intent.batchId, false, signal));
        show([(await getBatch(http, intent.batchId, { signal })).batch]);
        return say("The batch goes on.");
      case "retry": {
        const batch = await retryBatch(http, intent.batchId, signal);
        show([batch]);
        const images = batch.itemCount === 1 ? "1 image" : `${batch.itemCount} images`;
        return say(`Retrying ${images}, as a new batch “${batch.name}”.`);
      }
      case "delete-outputs":
        show([await deleteOutputs(http, intent.batchId, signal)]);
        return say("The image files are deleted; the record stays.");
      case "delete-record":
        await deleteRecord(http, intent.batchId, signal);
        forget(intent.batchId);
        return say("The record is deleted; its files go when their time comes.");
      case "open-folder": {
        const path = directoryOf(intent.batchId);
        if (path === null) return say("The directory of this batch is unknown here.");
        return say((await openPath(path)) ? `Opened ${path}.` : `The files are in ${path}.`);
      }
      case "open-console": {
        const link = await own?.signInLink?.();
        if (link === undefined) return;
        return say((await openPath(link)) ? "Opened the web console in the browser." : `Open ${link}`);
      }
      case "pause":
        await http.stream(
          async () => ({ method: intent.isPaused ? "POST" : "DELETE", path: routes.consolePause, signal }),
          async (response) => response.cancel(),
        );
        return tell({ type: "vitals", vitals: { isPaused: intent.isPaused } });
    }
  };

  /** Shows everything that happens in the service, until the returned function is called. */
  const follow = ({ lines }: OwnService): (() => void) => {
    const stopping = new AbortController();
    const changed = new Set<string>();
    let [hasAll, hasMoved, isReading] = [false, true, false];
    const readOne = async (id: string) => {
      try {
        const { batch } = await getBatch(http, id, { signal: stopping.signal });
        if (madeOf.get(id) !== GONE) show([batch]);
      } catch (error) {
        if (!(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_NOT_FOUND") throw error;
        forget(id);
      }
    };
    const read = async () => {
      if (!hasAll) {
        hasAll = true;
        show((await listBatches(http, {}, null, stopping.signal)).batches);
      }
      for (const id of changed) {
        changed.delete(id);
        await readOne(id);
      }
      if (!hasMoved) return;
      hasMoved = false;
      const { json } = await http.json({
        method: "GET",
        path: routes.consoleService,
        signal: stopping.signal,
      });
      tell({ type: "vitals", vitals: vitalsOfService(json as OverviewObject) });
    };
    const poke = () => {
      if (isReading || stopping.signal.aborted) return;
      isReading = true;
      read()
        .catch((error: Error) => stopping.signal.aborted || trouble(error.message))
        .finally(() => {
          isReading = false;
          if (changed.size > 0) poke();
        });
    };
    const onEvent = (name: string, id: string | null) => {
      if (name === "ready") hasAll = false;
      else if (name === "batch_deleted" && id !== null) {
        madeOf.set(id, GONE);
        changed.delete(id);
        forget(id);
      } else if (id !== null) changed.add(id);
      hasMoved = true;
      poke();
    };
    const refresh = setInterval(() => {
      for (const { id, status } of batches.values()) if (status === "running") changed.add(id);
      hasMoved = true;
      poke();
    }, REFRESH_MS);
    const unsubscribe = lines(tell);
    followEvents(http, { clock, signal: stopping.signal }, onEvent).catch(() => {});
    poke();
    return () => {
      unsubscribe();
      clearInterval(refresh);
      stopping.abort();
    };
  };

  return {
    abilities: { ownsService: own !== null, openConsole: own?.signInLink != null },
    start: (listener) => {
      tell = listener;
      const unknown = { dataDirectory: null, providers: null, startedAtMs: null };
      tell({ type: "service", facts: { url, ...(own?.facts ?? unknown) } });
      if (own !== null) return follow(own);
      show([...batches.values()]);
      return () => {};
    },
    perform,
    show,
    trouble,
  };
}

/** In place of the number of images of a batch whose record was deleted: a read that had begun must not show it again. */
const GONE = -1;

/** The images that these batches still wait for. */
function vitalsOf(batches: readonly Batch[]): Partial<Vitals> {
  const pending = batches.map(({ isDone, itemCount, successCount, failCount }) =>
    isDone ? 0 : (itemCount ?? 0) - successCount - failCount,
  );
  const isPlay = batches.length > 0 && batches.every((batch) => batch.isPlay);
  return { waitingItems: pending.reduce((sum, count) => sum + count, 0), isPlay };
}

function vitalsOfService({ money, disk_free_bytes, queue, providers }: OverviewObject): Partial<Vitals> {
  const states = providers.flatMap((each) => [
    { provider: each.name, model: null, ...each },
    ...each.models.map((state) => ({ provider: each.name, ...state })),
  ]);
  return {
    isPlay: money.play_money,
    balanceMicroUsd: numberToMicros(money.balance),
    heldMicroUsd: numberToMicros(money.held),
    freeDiskBytes: disk_free_bytes,
    waitingItems: queue.waiting,
    runningItems: queue.running,
    concurrency: queue.concurrency,
    isPaused: queue.paused,
    troubles: states
      .filter(({ state }) => state !== "ok")
      .map(({ provider, model, reason, until }) => ({
        provider,
        model,
        message: reason ?? "",
        untilMs: until === null ? null : until * 1000,
      })),
  };
}

/** Only a service of this process reports the history. */
function historyOf(batch: Batch | undefined): BatchDetail["history"] {
  const history = batch?.raw.history as { status: BatchStatus; at: number }[] | undefined;
  return history?.map(({ status, at }) => ({ status, atMs: at * 1000 })) ?? null;
}

function imagesOf(item: BatchItem | undefined): NonNullable<ItemObject["images"]> {
  return (item?.raw.images ?? []) as NonNullable<ItemObject["images"]>;
}

function toItemRow(item: BatchItem): ItemRow {
  const { customId, status, promptPreview, error, raw } = item;
  const images = imagesOf(item);
  return {
    customId,
    status: ITEM_STATUSES.find((known) => known === status) ?? "pending",
    prompt: typeof raw.prompt === "string" ? raw.prompt : (promptPreview ?? ""),
    error: error === null ? null : `${error.code}: ${error.message}`,
    sizeBytes: images.length === 0 ? null : images.reduce((sum, { size }) => sum + size, 0),
    costMicroUsd: typeof raw.cost === "number" ? numberToMicros(raw.cost) : null,
  };
}
