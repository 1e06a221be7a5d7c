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

/**
 * The service that a command works with. It is opened once, before the work, and stopped after it. `remote`: a service that the
 * caller named. `running`: a service of another process on the data directory, which may end at any time. `embedded`: a service
 * inside this process.
 */
export interface ConnectedService extends RunService, ReachableService {
  kind: "remote" | "running" | "embedded";
  /** Whether the service stops the batches of this command when the command ends. */
  stopsWithCommand: boolean;
  /** Notes once that images are drawings or recorded ones, and how to get others. Call it before work that makes images. */
  noteDrawings(): void;
  /** The providers that cannot be used until the configuration or a key changes, and why. */
  disabled(): readonly DisabledProvider[];
  /** Begins no more work for batches, and still answers. Left out for a service of another process. */
  pause?(): void;
  /** Counts the requests that run now and cost money. Left out for a service of another process. */
  paidRequests?(): number;
  /** Aborted with the reason if the service fails. Left out for a service of another process. */
  failed?: AbortSignal;
  /**
   * Ends the work with this service. A service inside this process is stopped: running items get up to one second, the others wait
   * for a later command. A service of another process stops the batches that this command alone has let go on.
   */
  stop(): Promise<void>;
}

/** A service that was found or started, before a command can ask it. */
export type FoundService = Omit<ConnectedService, "http" | "identity" | "keyFingerprint">;
