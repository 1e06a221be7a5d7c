/** `api`: takes requests. `worker`: makes images. `all`: both. */
type WorkerRole = "all" | "api" | "worker";

/**
 * A process that takes part in the work on a database. It counts as alive as long as its record exists: whatever names a
 * worker without a record is free.
 */
export interface WorkerRecord {
  id: string;
  role: WorkerRole;
  /** The version of the program. */
  version: string;
  /** The names of the providers with which it makes the images of batches. */
  providers: readonly string[];
  /** Whether somebody has asked it to begin no work. */
  isPaused: boolean;
}

/** Times are those of the database's clock, which all processes share. */
export interface WorkerRepository {
  /** The record counts as seen now. */
  insert(worker: WorkerRecord): Promise<void>;
  /**
   * Notes that the worker was seen now. `isAlive` is false when it has no record any more. `wasAway`: it was seen for the
   * last time more than `pauseMs` ago, or later than now.
   */
  heartbeat(id: string, pauseMs: number): Promise<{ isAlive: boolean; wasAway: boolean }>;
  /** Whether the worker has a record. */
  isAlive(id: string): Promise<{ isAlive: boolean }>;
  list(): Promise<WorkerRecord[]>;
  /** How long ago a worker that makes images was seen last; null when there is none. */
  silenceMs(): Promise<number | null>;
  /** Removes the workers that were seen for the last time more than `termMs` before this one. Returns how many. */
  removeSilent(id: string, termMs: number): Promise<number>;
  remove(id: string): Promise<void>;
  removeAll(): Promise<void>;
  /** Asks all workers to begin no work, or to begin work again. */
  setPaused(isPaused: boolean): Promise<void>;
}
