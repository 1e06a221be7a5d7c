import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { onTestFinished, type TestContext } from "vitest";
import { tempDir } from "./temp-dir.ts";

/** Skips the test, aloud, where strace is not there or may not watch another process. */
export function needStrace({ skip }: TestContext): void {
  const works = spawnSync("strace", ["-qq", "-e", "trace=none", "true"]).status === 0;
  if (works) return;
  process.stderr.write("SKIPPED: this needs strace\n");
  skip("there is no strace that may watch here");
}

/** Watches a process or a thread from now on. `seen` returns what was written down; `stop` ends it and does, too. */
export async function watchCalls(
  pid: number,
  args: readonly string[],
): Promise<{ seen(): Promise<string>; stop(): Promise<string> }> {
  const out = join(await tempDir(), "strace.txt");
  const strace = spawn("strace", ["-o", out, ...args, "-p", String(pid)], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const closed = once(strace, "close");
  // It says on stderr that it is attached.
  const [said] = await once(strace.stderr, "data");
  if (!String(said).includes("attached")) throw new Error(String(said));
  strace.stderr.resume();
  const stop = async () => {
    strace.kill("SIGTERM");
    await closed;
    return readFile(out, "utf8");
  };
  onTestFinished(async () => {
    strace.kill("SIGTERM");
    await closed;
  });
  return { seen: () => readFile(out, "utf8"), stop };
}

/** A system call with the lines of the record at which it began and ended. */
export interface Call {
  text: string;
  began: number;
  ended: number;
}

/** The calls of a record of `strace -f`, in the order in which they began. */
export function callsOf(record: string): Call[] {
  const calls: Call[] = [];
  const open = new Map<string, Call>();
  for (const [line, whole] of record.split("\n").entries()) {
    const [, thread = "", text = ""] = /^(\d+)\s+(.*)$/.exec(whole) ?? [];
    const pending = open.get(thread);
    if (/^<\.\.\. \w+ resumed>/.test(text) && pending) {
      pending.text += text;
      pending.ended = line;
      open.delete(thread);
      continue;
    }
    const call = { text, began: line, ended: line };
    calls.push(call);
    if (text.endsWith("<unfinished ...>")) open.set(thread, call);
  }
  return calls;
}
