/** A service that commands talk to over HTTP, wherever it runs. */
export interface ServiceConnection {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /**
   * `remote`: named by the caller. `shared`: an embedded service of another process on the same data directory.
   * `own`: an embedded service inside this process, gone when the command ends.
   */
  kind: "remote" | "shared" | "own";
  /** Throws when the address is no longer that of the service. Absent where nothing can tell. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  /** Whether short polling intervals are fair: the service is on this machine. */
  isLocal: boolean;
  /** Aborted with the reason when an `own` service cannot go on. */
  failed?: AbortSignal;
  /** Stops an `own` service (running items get up to one second, the rest is parked); nothing for the others. */
  close(): Promise<void>;
}
