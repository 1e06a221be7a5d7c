import type { UpstreamName } from "../../config/presets.ts";
import type { ProviderIdentity } from "../../contract/data-directory.ts";

/** The upstream that the images of a command come from, on the embedded service. */
export interface UpstreamChoice {
  name: UpstreamName;
  /** Whether `--upstream` names it. Else the directory of the run remembers it. */
  isTyped: boolean;
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
}

export interface DisabledProvider {
  provider: string;
  message: string;
  /** `forbidden`: its upstream takes the key and forbids the requests. Else the key is missing or not accepted. */
  trouble: "credential" | "forbidden";
}

/** A connection of a command to a service over HTTP. */
export interface ServiceConnection {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /**
   * `remote`: named by the caller. `shared`: an embedded service of another process on the same data directory.
   * `own`: an embedded service inside this process, stopped when the command ends.
   */
  kind: "remote" | "shared" | "own";
  /** Throws if the address no longer belongs to the service. Absent if that cannot be checked. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  /** Whether the service is on this machine, so that short polling intervals are acceptable. */
  isLocal: boolean;
  /** The providers of an embedded service. An entry that is not `free` costs real money. */
  providers?: readonly ProviderIdentity[];
  /** The data directory of an embedded service. */
  dataDirectory?: string;
  /** The upstream that the command named or the run remembers, of an embedded service. */
  upstream?: UpstreamName | null;
  /**
   * Notes once that images are drawings, and how to get real ones. Call it before work that makes images. Does
   * nothing for other services.
   */
  noteDrawings?: () => void;
  /** The providers of an embedded service that cannot be used until the configuration or a key changes, and why. */
  disabled?: () => readonly DisabledProvider[];
  /** Aborted with the reason if an `own` service fails. */
  failed?: AbortSignal;
  /** Counts the requests of an `own` service that run now and cost money. */
  paidRequests?: () => number;
  /** Stops an `own` service: running items get up to one second, the rest is parked. Does nothing for the others. */
  close(): Promise<void>;
}
