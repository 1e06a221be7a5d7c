import { isProceduralOnly } from "../../config/load.ts";
import type { Config } from "../../config/schema.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { createLog } from "../../service/pino-log.ts";
import type { Output } from "../command-line/command-context.ts";
import type { ServiceConnection } from "./connection.ts";
import { findRunning } from "./running-service.ts";

/** Running items get this long at the end of a command; then they are parked for the next one. */
const GRACE_MS = 1000;
/** How long to wait for the service of another command that owns the directory. */
const OWNER_PATIENCE_MS = 20_000;
const OWNER_POLL_MS = 100;

interface Embedding {
  config: Config;
  dataDirectory: string;
  needs: { workers: boolean };
  output: Pick<Output, "warn" | "note">;
  signal: AbortSignal;
  /** For tests. */
  clock?: Clock;
}

/**
 * Connects to the embedded service: the one that already runs on the data directory, else a new one inside this process
 * on a free loopback port. Two commands that start at the same time share one service.
 */
export async function connectEmbedded(embedding: Embedding): Promise<ServiceConnection> {
  const { config, dataDirectory, needs, output, signal, clock = systemClock } = embedding;
  output.warn(
    isProceduralOnly(config)
      ? "using the embedded service (procedural drawings, not a model); set IMGBATCH_BASE_URL for a real one"
      : "using the embedded service; set IMGBATCH_BASE_URL for another one",
  );
  // An attempt waits for the owner, too: the number of attempts says little about the time.
  const startMs = clock.monotonicMs();
  for (;;) {
    const running = await findRunning(dataDirectory);
    if (running && (running.workers || !needs.workers)) {
      const { url: baseUrl, apiKey, confirm } = running;
      return { baseUrl, apiKey, confirm, kind: "shared", isLocal: true, close: async () => {} };
    }
    try {
      return await startOwn(embedding);
    } catch (error) {
      const isOwned = error instanceof ImgbatchError && error.code === "DATA_DIRECTORY_IN_USE";
      if (!isOwned || clock.monotonicMs() - startMs >= OWNER_PATIENCE_MS) throw error;
    }
    await clock.sleep(OWNER_POLL_MS, signal);
  }
}

async function startOwn({ config, dataDirectory, needs, output }: Embedding): Promise<ServiceConnection> {
  const { startService } = await import("../../service/start-service.ts");
  const service = await startService({
    config,
    dataDirectory,
    address: { host: "127.0.0.1", port: 0 },
    announceUrl: false,
    workers: needs.workers,
    log: createLog({ level: "warn", forPeople: true, write: (line) => output.note(line.trimEnd()) }),
  });
  return {
    baseUrl: service.url,
    apiKey: service.credentials.api_key,
    kind: "own",
    isLocal: true,
    failed: service.failed,
    close: () => service.close(service.failed.aborted ? 0 : GRACE_MS),
  };
}
