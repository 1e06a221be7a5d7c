import { rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { resolve } from "node:path";
import type { Config } from "../../../config/schema.ts";
import type { Log } from "../../../kernel/log.ts";
import { type LocalService, startService } from "../../../service/start-service.ts";
import { paidRequestsNote } from "../../interruption/paid-requests.ts";
import { makeEphemeralDirectory } from "../../service/ephemeral-directory.ts";

/** A service in this process, for the time of one command. */
export interface OwnService {
  url: string;
  apiKey: string;
  dataDirectory: string;
  /** Whether the directory was created for this service, and is removed with it. */
  isOwn: boolean;
  /** Stops the service, and removes its directory unless the caller named it. */
  close(): Promise<void>;
  /** Removes the directory synchronously, for an exit handler. */
  remove(): void;
}

/** Starts the service on a new directory, or on `dataDirectory`, which is never removed. */
export async function startOwnService(options: {
  config: Config;
  dataDirectory: string | undefined;
  /** See `ServiceOptions`. */
  budgetMicroUsd: number;
  address: { host: string; port: number };
  graceMs: number;
  nowMs: number;
  log: Log;
  note(line: string): void;
}): Promise<OwnService> {
  const { config, address, graceMs, log, budgetMicroUsd } = options;
  const isOwn = options.dataDirectory === undefined;
  const dataDirectory = resolve(
    options.dataDirectory ?? (await makeEphemeralDirectory("exec", options.nowMs)),
  );
  let service: LocalService;
  try {
    service = await startService({
      config,
      dataDirectory,
      address,
      log,
      workers: true,
      announceUrl: true,
      budgetMicroUsd,
    });
  } catch (error) {
    if (isOwn) await rm(dataDirectory, { recursive: true, force: true });
    throw error;
  }
  const removeOwn = async () => {
    if (!isOwn) return;
    const removed = rm(dataDirectory, { recursive: true, force: true, maxRetries: 3 });
    await removed.catch(({ message }) => options.note(`${dataDirectory} cannot be removed: ${message}`));
  };
  return {
    url: service.url,
    apiKey: service.credentials.api_key,
    dataDirectory,
    isOwn,
    close: async () => {
      const note = paidRequestsNote(service.view.queue().paid, "Ctrl-C");
      if (note !== null) options.note(note);
      try {
        await service.close(graceMs);
      } finally {
        await removeOwn();
      }
    },
    remove: () => {
      try {
        if (isOwn) rmSync(dataDirectory, { recursive: true, force: true });
      } catch {
        // The process ends; nobody can be told any more.
      }
    },
  };
}
