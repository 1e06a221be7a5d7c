import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config.ts";
import {
  type Credentials,
  credentialsSchema,
  DATA_FILES,
  type ServerFile,
  serverFileSchema,
} from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { routes } from "../contract/routes.ts";
import { systemClock } from "../kernel/clock.ts";
import { createLog } from "../kernel/pino-log.ts";
import type { Output } from "./command.ts";
import type { ServiceConnection } from "./service-connection.ts";

/** Running items get this long at the end of a command; then they are parked for the next one. */
const GRACE_MS = 1000;
const PROBE_TIMEOUT_MS = 2000;
/** How long another command may hold the directory before its service answers. */
const OWNER_PATIENCE_MS = 20_000;
const OWNER_POLL_MS = 100;

interface Embedding {
  config: Config;
  dataDirectory: string;
  needs: { workers: boolean };
  output: Output;
  signal: AbortSignal;
}

/**
 * The embedded service: the one that already runs on the data directory, else one inside this process on a free
 * loopback port. Two commands that start at once end up with one service.
 * Rules: EMBED-1, EMBED-2, EMBED-3, EMBED-4.
 */
export async function connectEmbedded(embedding: Embedding): Promise<ServiceConnection> {
  const { dataDirectory, needs, output, signal } = embedding;
  sayOnce(output);
  for (let waitedMs = 0; ; waitedMs += OWNER_POLL_MS) {
    const running = await findRunning(dataDirectory);
    if (running && (running.workers || !needs.workers)) {
      const { api_key: apiKey } = await readCredentials(dataDirectory);
      return { baseUrl: running.url, apiKey, kind: "shared", isLocal: true, close: async () => {} };
    }
    try {
      return await startOwn(embedding);
    } catch (error) {
      const isOwned = error instanceof ImgbatchError && error.code === "DATA_DIRECTORY_IN_USE";
      if (!isOwned || waitedMs >= OWNER_PATIENCE_MS) throw error;
    }
    await systemClock.sleep(OWNER_POLL_MS, signal);
  }
}

/** The key for a base URL that is the running service of the data directory; null for any other. */
export async function credentialsIfRunningAt(
  dataDirectory: string,
  baseUrl: string,
): Promise<Credentials | null> {
  const server = await readServer(dataDirectory);
  if (server?.url !== baseUrl || !(await findRunning(dataDirectory))) return null;
  return readCredentials(dataDirectory);
}

async function startOwn({ config, dataDirectory, needs, output }: Embedding): Promise<ServiceConnection> {
  const { startService } = await import("../app.ts");
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

/** The service of the directory, when its address answers as that very service (ports are reused). */
async function findRunning(dataDirectory: string): Promise<ServerFile | null> {
  const server = await readServer(dataDirectory);
  if (!server) return null;
  try {
    const answer = await fetch(server.url + routes.health, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    const body = (await answer.json()) as { instance?: unknown };
    return body.instance === server.instance ? server : null;
  } catch {
    return null;
  }
}

/** What says where the service of a data directory runs; null when none does, or it cannot be read. */
export async function readServer(dataDirectory: string): Promise<ServerFile | null> {
  try {
    const text = await readFile(join(dataDirectory, DATA_FILES.server), "utf8");
    return serverFileSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

async function readCredentials(dataDirectory: string): Promise<Credentials> {
  const path = join(dataDirectory, DATA_FILES.credentials);
  try {
    return credentialsSchema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    const message = `${path} cannot be read: it holds the key of the embedded service. Restart the service to get a new one.`;
    throw new ImgbatchError("API_KEY_REQUIRED", message, { cause });
  }
}

function sayOnce(output: Output): void {
  output.warn(
    "using the embedded service (procedural drawings, not a model); set IMGBATCH_BASE_URL for a real one",
  );
}
