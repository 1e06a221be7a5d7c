import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseConfig } from "../../src/config/load.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { startService } from "../../src/service/start-service.ts";
import { watchDirectory } from "../support/secrets.ts";

export const MODEL = "gemini-nano-banana-2.1";

export interface SdkService {
  url: string;
  apiKey: string;
  close(): Promise<void>;
}

/** The whole service, set up for the vendor's own libraries. Without workers, nothing but real time works. */
export async function startSdkService(
  limits: object = {},
  workers = false,
  clock: Clock = systemClock,
): Promise<SdkService> {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-sdk-"));
  const config = { vendor: { preset: "google" }, limits };
  const service = await startService({
    config: parseConfig(config, "test"),
    dataDirectory: data,
    address: { host: "127.0.0.1", port: 0 },
    workers,
    clock,
    log: silentLog,
  });
  return {
    url: service.url,
    apiKey: service.credentials.api_key,
    close: async () => {
      await service.close(0);
      await watchDirectory(data);
      await rm(data, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}
