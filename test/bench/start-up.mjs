import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { timed } from "./measure.mjs";

const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
const TERMINAL = fileURLToPath(new URL("../support/real-terminal.py", import.meta.url));
const ROUNDS = 15;

/** How much longer commands take than Node alone: short ones, and those that ask a service about a batch that has ended. */
export async function measureStartUp() {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const [served, embedded] = [join(root, "served"), join(root, "embedded")];
  const environment = (data) => ({ PATH: process.env.PATH, HOME: root, IMGBATCH_DATA: data });
  const imgbatch = (args, data) =>
    spawnSync(process.execPath, [BIN, ...args], { cwd: root, env: environment(data), encoding: "utf8" });
  let service;
  try {
    const ids = {};
    await writeFile(join(root, "prompts.txt"), "a fox in the snow\n");
    for (const data of [served, embedded]) {
      imgbatch(["submit", "prompts.txt", "--output", `${data}-out`], data);
      ids[data] = JSON.parse(imgbatch(["list", "--json"], data).stdout).batches[0].id;
    }
    service = spawn(process.execPath, [BIN, "serve", "--no-ui", "--port", "0", "--log-level", "warn"], {
      cwd: root,
      env: environment(served),
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(createInterface({ input: service.stdout }), "line");

    const id = ids[served];
    const commands = [
      { name: "--version", goal: 1.25, args: ["--version"] },
      { name: "--help", goal: 1.4, args: ["--help"] },
      { name: "a mistyped command", goal: 1.4, args: ["stauts"], exit: 2 },
      { name: "status", goal: 1.6, args: ["status", id] },
      { name: "list", goal: 1.6, args: ["list"] },
      { name: "items", goal: 1.6, args: ["items", id] },
      { name: "wait", goal: 1.6, args: ["wait", id] },
      { name: "status, embedded", goal: 4, args: ["status", ids[embedded]], data: embedded },
    ];
    const runs = commands.map(({ name, goal, args, exit = 0, data = served }) => ({
      name,
      goal,
      times: [],
      run: () => {
        const { status, stderr } = imgbatch(args, data);
        if (status !== exit) throw new Error(`${name}: exit ${status}: ${stderr}`);
      },
    }));
    const onTerminal = (args, text) => untilWritten(args, text, { cwd: root, env: environment(served) });
    const watch = { times: [], run: () => onTerminal([BIN, "watch", id], id.slice(0, 16)) };
    const bare = { times: [], run: () => onTerminal(["-e", "console.log('x')"], "x") };
    const node = { times: [], run: () => spawnSync(process.execPath, ["-e", "0"]) };
    for (let round = 0; round < ROUNDS; round++) {
      for (const each of [node, ...runs, bare, watch]) each.times.push(await timed(each.run));
    }
    const baseMs = fastest(node.times);
    const results = runs.map(({ name, goal, times }) => ({
      name: `start-up against node: ${name}`,
      value: fastest(times) / baseMs,
      goal: { atMost: goal },
      facts: { [name]: `${fastest(times).toFixed(0)} ms` },
    }));
    // Without the program that makes the terminal.
    const frameMs = fastest(watch.times) - fastest(bare.times) + baseMs;
    results.push({
      name: "start-up against node: watch, until its first frame",
      value: frameMs / baseMs,
      goal: { atMost: 3 },
      facts: { "watch, until its first frame": `${frameMs.toFixed(0)} ms` },
    });
    results[0].facts["node -e 0"] = `${baseMs.toFixed(0)} ms`;
    return results;
  } finally {
    service?.kill();
    if (service) await once(service, "exit");
    await rm(root, { recursive: true, force: true });
  }
}

/** Runs Node on a terminal until it has written a text, and ends it. */
async function untilWritten(args, text, { cwd, env }) {
  const child = spawn("python3", [TERMINAL, "80", "24", process.execPath, ...args], {
    cwd,
    env: { ...env, TERM: "xterm-256color" },
  });
  const closed = once(child, "close");
  let written = "";
  for await (const piece of child.stdout) {
    written += piece;
    if (written.includes(text)) break;
  }
  child.stdin.end();
  await closed;
  if (!written.includes(text)) throw new Error(`not written: ${text}`);
}

/** A process takes a whole number of steps; what else the machine does only adds to them. */
const fastest = (times) => Math.min(...times);
