import type { RequestHandler } from "express";
import type { PixelSizes } from "../contract/image-formats.ts";
import type { Limits } from "../contract/limits.ts";
import type { ShownJob, Waiting } from "../contract/waiting.ts";
import type { Scope } from "../domain/accounts.ts";
import type { CreateBatchDeps } from "../domain/batches/create-batch.ts";
import type { Feed } from "../domain/feed.ts";
import type { FindGeneratedFile, Uploads } from "../domain/files/uploads.ts";
import type { ProviderHealth } from "../domain/health/provider-health.ts";
import type { Thumbnails } from "../domain/images/thumbnails.ts";
import type { GroupEntry, ModelEntry, Offers } from "../domain/models.ts";
import type { ImageConverter, ImageInspector } from "../domain/ports/image-inspector.ts";
import type { ItemProvider } from "../domain/ports/image-provider.ts";
import type { Realtime } from "../domain/realtime/realtime.ts";
import type { BatchRecord } from "../domain/records.ts";
import type { Log } from "../kernel/log.ts";
import type { EventHub } from "./console/event-hub.ts";
import type { requireKnownHost } from "./http/host.ts";
import type { DownloadSlots, FailedAuthLimit } from "./http/limits.ts";
import type { consoleSecrets } from "./http/secrets.ts";
import type { Metrics } from "./monitoring/metrics.ts";
import type { BodyBudgets } from "./request-body/body-budgets.ts";
import type { TestBench } from "./testing/test-bench.ts";

/** The items (or jobs of whole batches) that run, and the most that may run at once. */
interface QueueLoad {
  running: number;
  slots: number;
  isPaused: boolean;
}

/** The parts of the service that the handlers use. */
export interface ApiDeps extends CreateBatchDeps {
  limits: Limits;
  /** `trustProxy`: which proxies are believed about a caller's address, as Express' `trust proxy` takes it. */
  server: Parameters<typeof requireKnownHost>[0] & {
    trustProxy: boolean | number | string[];
    corsOrigins?: readonly string[];
  };
  models: readonly ModelEntry[];
  groups: readonly GroupEntry[];
  /** The only credential of an application for the live view of `serve`; null for every other application. */
  operatorToken: string | null;
  /** What the holder of a key sees and may agree to. That of `credentials.json` owns the service. */
  scopeOf(keyId: string): Scope;
  features: {
    batchImages: boolean;
    strictImageConfig: boolean;
    console: boolean;
    acceptWithoutWorkers: boolean;
  };
  /** The build of the web console, which may be missing. */
  consoleDirectory: string;
  secrets: ReturnType<typeof consoleSecrets>;
  events: EventHub;
  /** Shown to the owner alone. */
  facts: { dataDirectory: string; startedAtMs: number };
  /** Asks all workers to begin no work, or to begin work again. */
  setPaused(isPaused: boolean): void;
  /** Forgets the troubles of a provider in every process. Returns false for an unknown name. */
  resumeProvider(name: string): boolean;
  /** The load of all workers now. */
  queueOfAll(): Promise<QueueLoad>;
  thumbnails: Thumbnails;
  /** Bound the thumbnails that a key may have asked for at once. */
  thumbnailSlots: DownloadSlots;
  /** Headers of the real-time API that carry a key, in their order. */
  keyHeaders: readonly string[];
  /** Names of OpenAI's clients with the ids of the models that they stand for. A `*` at the end of a name stands for any text. */
  modelNames: Readonly<Record<string, string>>;
  /**
   * The pixels that a vendor's model of this name takes, for drawings in its place; null when they are not known. A model that
   * has ended takes those of its successors, too.
   */
  pixelsNamed(name: string): { pixels: PixelSizes; hasEnded: boolean } | null;
  realtime: Realtime;
  /** The offers of the providers that are used for real time. */
  realtimeOffers: Offers<ItemProvider>;
  /** The state of all configured providers. */
  health: ProviderHealth;
  /** Why the items of a batch cannot be made now; null when they can. */
  waitingOf(batch: BatchRecord): Waiting | null;
  /** Returns the jobs of a batch that are at work at an upstream. */
  jobsOf(batch: BatchRecord): Promise<ShownJob[]>;
  uploads: Uploads;
  findGeneratedFile: FindGeneratedFile;
  inspector: ImageInspector;
  converter: ImageConverter;
  slots: DownloadSlots;
  bodyBudgets: BodyBudgets;
  failedAuth: FailedAuthLimit;
  log: Log;
  /** Gets a line for each request; silent for a live view, which gets the requests from the feed. */
  requestLog: Log;
  /** The secret of `server.json`: proves that this service, and no other program on its address, owns the directory. */
  secret: string;
  /** Whether this process makes images of batches itself. */
  hasWorkers: boolean;
  /** Whether any process makes images of batches now. */
  workersRunning(): boolean;
  /** Asks whether the bucket with the images can be used, and rejects when not; null for files. */
  askBucket: (() => Promise<unknown>) | null;
  /** Whether the process takes no new work, because it is about to end. */
  isStopping(): boolean;
  /** Bytes that may still be written where the data is kept. */
  freeDiskBytes(): Promise<number>;
  feed: Feed;
  /** Faults and journal of tests; null for a service that is not for tests. */
  testBench: TestBench | null;
  /** Lets a batch go on, because somebody names it. With `isLease`, that is to be said again every few seconds. */
  goOn(batchId: string, isLease: boolean): Promise<void>;
  /** Whoever named the batch with a lease has left. */
  stopGoing(batchId: string): Promise<void>;
  /**
   * Cancels a batch. Resolves before it has ended when requests that are paid take long. Throws `BATCH_IMAGE_CANCEL_FAILED`
   * when an upstream cannot be reached.
   */
  cancel(batchId: string): Promise<void>;
  /** Begins to end the jobs of a batch at their upstream. Throws `BATCH_IMAGE_NOT_IN_JOBS` for a batch that cannot have any. */
  endJobs(batchId: string): Promise<void>;
  /** Whether the images of a batch are made by jobs of an upstream. */
  isInJobs(batch: BatchRecord): boolean;
  /** Called after a batch was accepted. */
  onBatchCreated(batch: BatchRecord): void;
}

/** The deps of the API with the parts that the application makes for itself. */
export interface HandlerDeps extends ApiDeps {
  metrics: Metrics;
  /** Serves the OpenAPI document. */
  openApi: RequestHandler;
}
