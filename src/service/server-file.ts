import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { DATA_FILES, type ServerFile } from "../contract/data-directory.ts";
import type { Clock } from "../kernel/clock.ts";
import { writeFileDurably } from "../kernel/files/durable-file.ts";

/** Writes `server.json`, by which commands find the service of a data directory. */
export async function writeServerFile(
  directory: string,
  facts: Pick<ServerFile, "url" | "workers" | "providers" | "secret">,
  clock: Clock,
): Promise<void> {
  const started_at = Math.floor(clock.nowMs() / 1000);
  const file: ServerFile = { ...facts, pid: process.pid, started_at };
  await writeFileDurably(join(directory, DATA_FILES.server), `${JSON.stringify(file)}\n`, { mode: 0o600 });
}

/** Removes `server.json`, unless it is that of another service, which took over a directory whose files were replaced. */
export async function removeServerFile(directory: string, secret: string): Promise<void> {
  const path = join(directory, DATA_FILES.server);
  const text = await readFile(path, "utf8").catch(() => "");
  if (text.includes(secret)) await rm(path, { force: true });
}
