import type { PricedModel } from "../../config/paths.ts";
import type { ProviderIdentity } from "../../contract/data-directory.ts";
import type { UnknownOutcome } from "../../contract/limits.ts";
import type { RunService } from "../../runs/directory/run-service.ts";

/** The upstream that the images of a command come from, on the embedded service. */
export interface UpstreamChoice {
  name: string;
  /** Whether `--upstream` names it. Else the directory of the run remembers it. */
  isTyped: boolean;
  /** More upstreams at which batches of the run have not ended. Default: none. */
  besides?: readonly string[];
}

/** The parts of a service that a command needs. */
export interface ServiceNeeds {
  workers: boolean;
  /**
   * Whether the command needs images. The service must then have the right providers, with their keys. Default: the
   * value of `workers`.
   */
  images?: boolean;
  /** Null: the command takes `--upstream`, and none is named. Left out: it takes no such option. */
  upstream?: UpstreamChoice | null;
  /** The model of `--unit-cost`. */
  priced?: PricedModel | null;
  /** What `--unknown` says of paid requests whose answers are lost. Default: the rule of the configuration. */
  unknownOutcome?: UnknownOutcome | undefined;
  /** How many images the service inside the command makes at once, from `--concurrency`. Default: as the configuration says. */
  concurrency?: number | undefined;
}

export interface DisabledProvider {
  provider: string;
  message: string;
  /** `forbidden`: its upstream takes the key and forbids the requests. Else the key is missing or not accepted. */
  trouble: "credential" | "forbidden";
}

/** A service that a command talks to over HTTP. */
export interface ReachableService {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** Throws if the address no longer belongs to the service. Absent if that cannot be checked. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  /** Whether the service is on this machine, so that short polling intervals are acceptable. */
  isLocal: boolean;
  /** The providers, where they are known. An entry that is not `free` costs real money. */
  providers?: readonly ProviderIdentity[];
}

/** A service on the data directory of the command. */
interface OnDataDirectory extends ReachableService {
  dataDirectory: string;
  providers: readonly ProviderIdentity[];
  /** The upstream that the command named or the run remembers. */
  upstream: string | null;
  /** Notes once that images are drawings or recorded ones, and how to get others. Call it before work that makes images. */
  noteDrawings(): void;
  /** The providers that cannot be used until the configuration or a key changes, and why. */
  disabled(): readonly DisabledProvider[];
}

export type ServiceConnection =
  /** A service that the caller named. */
  | (ReachableService & { kind: "remote" })
  /** A service of another process on the data directory. It may end at any time. */
  | (OnDataDirectory & {
      kind: "running";
      /** Whether it ends with the command of that process. Then it works on this command's batches while this command runs. */
      endsWithCommand: boolean;
      /** Lets a batch go on while this command runs. */
      goOn(batchId: string): Promise<void>;
      /** Stops the batches that this command alone has let go on. */
      leave(): Promise<void>;
    })
  /** A service inside this process. */
  | (OnDataDirectory & {
      kind: "embedded";
      /** Aborted with the reason if the service fails. */
      failed: AbortSignal;
      /** Lets a batch go on. */
      goOn(batchId: string): Promise<void>;
      /** Counts the requests that run now and cost money. */
      paidRequests(): number;
      /** Begins no more work for batches, and still answers. */
      pause(): void;
      /** Stops it: running items get up to one second, the rest is parked. */
      close(): Promise<void>;
    });

/** The service that a command works with. */
export interface ConnectedService extends RunService {
  kind: ServiceConnection["kind"];
  /** Begins no more work for batches. Left out for a service of another process. */
  pause?(): void;
  /** Whether the service stops the batches of this command when the command ends. */
  stopsWithCommand: boolean;
  /** Notes once that images are drawings or recorded ones, if the service is one of the data directory. */
  noteDrawings(): void;
}
