import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { cleanEnvironment } from "./processes.ts";

const QUICK = resolve(import.meta.dirname, "../soak/quick-service.mjs");

export interface QuickService {
  child: ChildProcess;
  /** The one thread that touches files. */
  fileThread: number;
  url: string;
  key: string;
  /** Every picture that was asked of the provider. */
  generations(): Promise<string[]>;
}

/**
 * The service of the soak test in a process of its own, whose file work all happens on one thread; its data directory
 * is `data` in the directory.
 */
export async function startQuickService(directory: string): Promise<QuickService> {
  const data = join(directory, "data");
  const child = spawn(process.execPath, [QUICK], {
    env: cleanEnvironment({ UV_THREADPOOL_SIZE: "1" }),
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "close");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const said = async () => JSON.parse((await lines.next()).value);
  const { thread } = await said();
  const generations = join(directory, "generations.log");
  child.stdin.write(`${JSON.stringify({ data, generations, boot: 1, die: null })}\n`);
  const { url } = await said();
  const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
  const made = async () => (await readFile(generations, "utf8")).trim().split("\n");
  return { child, fileThread: thread, url, key, generations: made };
}
