import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const fromHere = (path) => fileURLToPath(new URL(path, import.meta.url));
const BIN = fromHere("../../bin/imgbatch.cjs");
const TERMINAL = fromHere("../support/real-terminal.py");
/** What the live view is built on, with one line of text. */
const INK = fromHere("bare-ink.mjs");
const ROUNDS = 15;

/** Node 22 keeps compiled code between two starts. It comes with the client libraries of `test/sdk`. */
const NODE_22 = fromHere("../sdk/node_modules/node/bin/node");

/** Makes a process write the processor time that it took, in microseconds, to a fourth stream. */
const REPORT = `process.on("exit", () => {
  const { user, system } = process.cpuUsage();
  require("node:fs").writeSync(3, String(user + system));
});`;

/**
 * How much more processor time commands take than Node alone, in an empty environment: variables of a shell, such as
 * `NODE_EXTRA_CA_CERTS`, make every start of Node slower, the baseline too. The last row is the time until the first frame, against a program that shows one line with Ink.
 */
export async function measureStartUp() {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const report = join(root, "report.cjs");
  const [served, embedded] = [join(root, "served"), join(root, "embedded")];
  const run = (node, args, data) => {
    const settings = { cwd: root, env: { HOME: root, IMGBATCH_DATA: data }, encoding: "utf8" };
    const { status, stdout, stderr, output } = spawnSync(node, ["--require", report, ...args], {
      ...settings,
      stdio: ["ignore", "pipe", "pipe", "pipe"],
    });
    if (status !== 0) throw new Error(`${args.join(" ")}: exit ${status}: ${stderr}`);
    return { stdout, cpuMs: Number(output[3]) / 1000 };
  };
  let service;
  try {
    await writeFile(report, REPORT);
    await writeFile(join(root, "prompts.txt"), "a fox in the snow\n");
    const ids = [served, embedded].map((data) => {
      run(process.execPath, [BIN, "submit", "prompts.txt", "--output", `${data}-out`], data);
      return JSON.parse(run(process.execPath, [BIN, "list", "--json"], data).stdout).batches[0].id;
    });
    service = spawn(process.execPath, [BIN, "serve", "--no-ui", "--port", "0", "--log-level", "warn"], {
      cwd: root,
      env: { HOME: root, IMGBATCH_DATA: served },
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(createInterface({ input: service.stdout }), "line");

    const [id] = ids;
    const here = process.execPath;
    const commands = [
      { name: "--help", goal: 3.7, args: ["--help"], node: here },
      { name: "status of a service", goal: 5.8, args: ["status", id], node: here },
      { name: "list, embedded", goal: 15.5, args: ["list"], data: embedded, node: here },
      ...(existsSync(NODE_22)
        ? [
            { name: "--help, Node 22", goal: 2.5, args: ["--help"], node: NODE_22 },
            { name: "status of a service, Node 22", goal: 3.9, args: ["status", id], node: NODE_22 },
          ]
        : []),
    ].map((command) => ({ data: served, times: [], bare: [], ...command }));
    const frames = { watch: [], ink: [], node: [] };
    for (let round = 0; round < ROUNDS; round++) {
      for (const { node, args, data, times, bare } of commands) {
        bare.push(run(node, ["-e", "0"], data).cpuMs);
        times.push(run(node, [BIN, ...args], data).cpuMs);
      }
      const env = { HOME: root, IMGBATCH_DATA: served, PATH: process.env.PATH };
      frames.node.push(await untilWritten(["-e", "console.log('x')"], "x", { cwd: root, env }));
      frames.ink.push(await untilWritten([INK], "ready", { cwd: root, env }));
      frames.watch.push(await untilWritten([BIN, "watch", id], id.slice(0, 16), { cwd: root, env }));
    }
    const row = (name, goal, ms, baseMs) => ({
      name: `start-up against node: ${name}`,
      value: ms / baseMs,
      goal: { atMost: goal },
      facts: { [name]: `${ms.toFixed(0)} ms`, "node alone": `${baseMs.toFixed(0)} ms` },
    });
    // Without the program that makes the terminal, and the start of Node in it.
    const ownMs = (times) => least(times) - least(frames.node);
    return [
      ...commands.map(({ name, goal, times, bare }) => row(name, goal, least(times), least(bare))),
      {
        name: "start-up against an Ink program of one line: watch, until its first frame",
        value: ownMs(frames.watch) / ownMs(frames.ink),
        goal: { atMost: 1 },
        facts: {
          watch: `${ownMs(frames.watch).toFixed(0)} ms after Node`,
          Ink: `${ownMs(frames.ink).toFixed(0)} ms after Node`,
        },
      },
    ];
  } finally {
    service?.kill();
    if (service) await once(service, "exit");
    await rm(root, { recursive: true, force: true });
  }
}

/** Runs Node on a terminal until it has written a text, and ends it. Returns how long the text took, in ms. */
async function untilWritten(args, text, { cwd, env }) {
  const start = performance.now();
  const child = spawn("python3", [TERMINAL, "80", "24", process.execPath, ...args], {
    cwd,
    env: { ...env, TERM: "xterm-256color", NODE_ENV: "production" },
  });
  const closed = once(child, "close");
  let written = "";
  for await (const piece of child.stdout) {
    written += piece;
    if (written.includes(text)) break;
  }
  const tookMs = performance.now() - start;
  child.stdin.end();
  await closed;
  if (!written.includes(text)) throw new Error(`not written: ${text}`);
  return tookMs;
}

/** What else the machine does only adds to the time of a process. */
const least = (times) => Math.min(...times);
