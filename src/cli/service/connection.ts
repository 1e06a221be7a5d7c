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
  /** Aborted with the reason if an `own` service fails. */
  failed?: AbortSignal;
  /** Stops an `own` service: running items get up to one second, the rest is parked. Does nothing for the others. */
  close(): Promise<void>;
}
