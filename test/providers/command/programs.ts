import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { vi } from "vitest";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { createCommandAdapter } from "../../../src/providers/command/provider.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { closing, entryOf, PNG } from "../../support/upstream-adapter.ts";
import type { RequestChanges } from "../upstream/scripted-server.ts";
import { imageRequest, never } from "../upstream/scripted-server.ts";

/** Gives programs twenty times as long to end by themselves. */
export const patientClock = {
  ...systemClock,
  sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(20 * ms, signal),
};

/** Gives programs that never end by themselves a tenth of the time before they are killed. */
export const hastyClock = {
  ...systemClock,
  sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 10, signal),
};

/** The beginning of every program of these tests. `home` is a directory of the test. */
const PRELUDE = `
import * as fs from "node:fs";
import { spawn, execFileSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
const home = dirname(fileURLToPath(import.meta.url));
const PNG = Buffer.from("${PNG.toString("base64")}", "base64");
const job = JSON.parse(fs.readFileSync(0, "utf8"));
const say = (value) => console.log(JSON.stringify(value));
const make = (name, bytes = PNG) => fs.writeFileSync(join(job.output_dir, name), bytes);
const tell = (name, value) => {
  fs.writeFileSync(join(home, "new"), JSON.stringify(value));
  fs.renameSync(join(home, "new"), join(home, name));
};
`;

export interface Options {
  args?: string[];
  /** The variables that the entry names. */
  env?: Record<string, string>;
  fields?: object;
  clock?: Clock;
}

/** Writes the program, and makes an adapter for it whose temporary files are in a directory of the test. */
export async function programmed(text: string, { args = [], ...options }: Options = {}) {
  const home = await tempDir();
  const script = join(home, "program.mjs");
  await writeFile(script, PRELUDE + text);
  return { script, ...(await adapterFor(home, [process.execPath, script, ...args], options)) };
}

/** The beginning of every shell program. `out` is the directory for images, and `make` puts one there. */
const SHELL_PRELUDE = `
home=\${0%/*}; prompt_file=$1; out=\${2%/*}; read -r input
make() { cp "$home/image" "$out/$1"; }
say() { printf '%s\\n' "$1"; }
`;

/** The same for a program of the shell, which starts in a tenth of the time. */
export async function inShell(text: string, options: Omit<Options, "args"> = {}) {
  const home = await tempDir();
  const script = join(home, "program.sh");
  await writeFile(join(home, "image"), PNG);
  await writeFile(script, SHELL_PRELUDE + text);
  return adapterFor(home, ["sh", script, "{prompt_file}", "{output}"], options);
}

async function adapterFor(
  home: string,
  argv: string[],
  { env = {}, fields = {}, clock = systemClock }: Omit<Options, "args">,
) {
  const temp = join(home, "temp");
  await mkdir(temp);
  vi.stubEnv("TMPDIR", temp);
  const entry = entryOf("command", { argv, env: Object.keys(env), ...fields });
  const deps = { clock, secret: (name: string) => env[name] ?? process.env[name] ?? null };
  const adapter = closing(createCommandAdapter(entry, deps));
  return {
    home,
    entry,
    deps,
    adapter,
    /** Makes one image. */
    generate: (changes: RequestChanges = {}, signal: AbortSignal = never) =>
      adapter.generate(imageRequest(changes), signal, () => {}),
    /** The value that the program has told under this name; null before. */
    told: (name: string) => readJson(join(home, name)),
    /** The temporary files that are there. */
    left: () => readdirSync(temp),
  };
}

function readJson(path: string) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

/** Whether a process runs. One that has ended and waits for its parent does not. */
export function runs(pid: number): boolean {
  const state = (process.platform === "linux" ? stateHere(pid) : stateByPs(pid)).trim();
  return state !== "" && !state.startsWith("Z");
}

/** The same as that of `ps`, without the start of a program: it is asked a hundred times a second. */
function stateHere(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1) ?? "";
  } catch {
    return "";
  }
}

function stateByPs(pid: number): string {
  return spawnSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" }).stdout;
}
