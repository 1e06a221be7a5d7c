import type { Config } from "../../config/schema.ts";
import { KeyedRequests } from "../../domain/realtime/keyed-requests.ts";
import { sharpConverter } from "../../imaging/sharp-images.ts";
import type { ApiDeps } from "../../server/deps.ts";
import { DownloadSlots, FailedAuthLimit } from "../../server/http/limits.ts";
import { BodyBudgets } from "../../server/request-body/body-budgets.ts";
import { generatedFiles } from "../../server/surfaces.ts";
import { consoleParts } from "../console.ts";
import type { SharedParts } from "./shared-parts.ts";

/** The parts of the API that follow from the configuration and what the process shares. */
type Derived = Omit<
  ApiDeps,
  | "operatorToken"
  | "setPaused"
  | "isLocalKey"
  | "isOwnerKey"
  | "facts"
  | "queueOfAll"
  | "realtime"
  | "waitingOf"
  | "jobsOf"
  | "requestLog"
  | "workersRunning"
  | "workersExpected"
  | "freeDiskBytes"
  | "askBucket"
  | "isStopping"
  | "secret"
  | "cancel"
  | "onBatchCreated"
>;

/** Makes the parts of the API for a service that listens on `host`. */
export function apiParts(
  { workerDeps, realtimeOffers, decoding }: SharedParts,
  config: Config,
  host: string,
): Derived {
  const { stores, blobs, clock, feed } = workerDeps;
  return {
    ...workerDeps,
    ...consoleParts({ stores, blobs, clock, decoding, feed }),
    server: { ...config.server, host },
    storageUriPrefixes: config.storageUriPrefixes,
    groups: config.groups,
    limits: config.limits,
    features: config.features,
    keyHeaders: config.vendor.keyHeaders,
    modelNames: config.openai.models,
    converter: sharpConverter(decoding),
    keyedRequests: new KeyedRequests(workerDeps),
    realtimeOffers,
    slots: new DownloadSlots(config.limits.downloadsPerKey),
    bodyBudgets: new BodyBudgets(),
    failedAuth: new FailedAuthLimit(config.limits.failedAuthPerMinute, clock, {
      countsLoopback: config.server.trustProxy !== false,
    }),
    findGeneratedFile: generatedFiles({ stores, blobs }),
  };
}
