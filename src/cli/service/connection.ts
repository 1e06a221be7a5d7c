import type { UpstreamName } from "../../config/presets.ts";
import type { ProviderIdentity } from "../../contract/provider-entries.ts";

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
   * Whether the command wants images: then the service must have the right providers, with their keys. Default: as
   * `workers`.
   */
  images?: boolean;
  /** Null: the command takes `--upstream`, and none is named. Left out: it takes no such option. */
  upstream?: UpstreamChoice | null;
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
  /** The upstream that the command named or the run remembers, of an embedded service. */
  upstream?: UpstreamName | null;
  /** Aborted with the reason if an `own` service fails. */
  failed?: AbortSignal;
  /** Stops an `own` service: running items get up to one second, the rest is parked. Does nothing for the others. */
  close(): Promise<void>;
}
