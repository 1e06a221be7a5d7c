import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { timed } from "./measure.mjs";

const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));
const BIN = join(PACKAGE, "bin/imgbatch.cjs");
const TERMINAL = fileURLToPath(new URL("../support/real-terminal.py", import.meta.url));
const ROUNDS = 15;

/** The barest program that finds a service by its directory and asks about a batch, with the modules that its proof needs. */
const ASKING = `
  const { readFileSync } = require("node:fs");
  const { get } = require("node:http");
  const [directory, id] = process.argv.slice(1);
  const read = (name) => JSON.parse(readFileSync(directory + "/" + name, "utf8"));
  const ask = (path, headers, done) => get(read("server.json").url + path, { headers }, (response) => {
    let text = "";
    response.on("data", (piece) => (text += piece)).on("end", () => done(text));
  });
  const challenge = require("node:crypto").randomBytes(32).toString("base64url");
  const authorization = "Bearer " + read("credentials.json").api_key;
  const show = (text) => console.log(JSON.parse(text).status);
  ask("/healthz?challenge=" + challenge, {}, () => ask("/v1/images/batches/" + id, { authorization }, show));
`;

/** These steer imgbatch, lead it to the files of whoever runs this, or are keys. */
const LEFT_OUT = /^(IMGBATCH_|XDG_|GITHUB_|CI$)|_API_KEY$/;

/**
 * How much longer commands take than Node alone: short ones, and those that ask a service about a batch that has ended.
 * All processes have the environment of whoever runs this, as from a shell: Node itself starts more slowly with some
 * variables, such as `NODE_EXTRA_CA_CERTS`, whose certificates each process reads. The first row also shows the time of
 * Node in an empty environment.
 */
export async function measureStartUp() {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const [served, embedded] = [join(root, "served"), join(root, "embedded")];
  const inherited = Object.entries(process.env).filter(([name]) => !LEFT_OUT.test(name));
  const environment = (data) => ({ ...Object.fromEntries(inherited), HOME: root, IMGBATCH_DATA: data });
  const imgbatch = (args, data) => runNode([BIN, ...args], { cwd: root, env: environment(data) });
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
      run: () => expectExit(imgbatch(args, data), exit, name),
    }));
    const installed = await install(join(root, "installed"));
    const first = {
      times: [],
      before: () => rmSync(join(installed, "dist/cache"), { recursive: true, force: true }),
      run: () => {
        const list = [join(installed, "bin/imgbatch.cjs"), "list"];
        expectExit(runNode(list, { cwd: root, env: environment(served) }), 0, "list");
      },
    };
    const asking = {
      times: [],
      run: () =>
        expectExit(runNode(["-e", ASKING, served, id], { cwd: root, env: environment(served) }), 0, "asking"),
    };
    const onTerminal = (args, text) => untilWritten(args, text, { cwd: root, env: environment(served) });
    const watch = { times: [], measure: () => onTerminal([BIN, "watch", id], id.slice(0, 16)) };
    const bare = { times: [], measure: () => onTerminal(["-e", "console.log('x')"], "x") };
    const node = { times: [], run: () => runNode(["-e", "0"], { cwd: root, env: environment(served) }) };
    const nodeAlone = { times: [], run: () => runNode(["-e", "0"], { cwd: root, env: {} }) };
    for (let round = 0; round < ROUNDS; round++) {
      for (const each of [nodeAlone, node, asking, ...runs, first, bare, watch]) {
        each.before?.();
        each.times.push(await (each.measure?.() ?? timed(each.run)));
      }
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
    results[0].facts["node -e 0, with an empty environment"] = `${fastest(nodeAlone.times).toFixed(0)} ms`;
    results.find(({ facts }) => facts.status).facts["the barest program that asks a service by node:http"] =
      `${fastest(asking.times).toFixed(0)} ms, ${(fastest(asking.times) / baseMs).toFixed(2)} of node`;
    const list = results.find(({ facts }) => facts.list);
    list.facts["list, the first start of an installation, which keeps the compiled code"] =
      `${fastest(first.times).toFixed(0)} ms`;
    return results;
  } finally {
    service?.kill();
    if (service) await once(service, "exit");
    await rm(root, { recursive: true, force: true });
  }
}

/** Copies the program as a package has it: without compiled code. */
async function install(directory) {
  const dist = join(PACKAGE, "dist");
  await cp(join(PACKAGE, "bin"), join(directory, "bin"), { recursive: true });
  const filter = (file) => file !== join(dist, "cache");
  await cp(dist, join(directory, "dist"), { recursive: true, filter });
  await cp(join(PACKAGE, "package.json"), join(directory, "package.json"));
  await symlink(join(PACKAGE, "node_modules"), join(directory, "node_modules"));
  return directory;
}

function runNode(args, { cwd, env }) {
  return spawnSync(process.execPath, args, { cwd, env, encoding: "utf8" });
}

function expectExit({ status, stderr }, exit, name) {
  if (status !== exit) throw new Error(`${name}: exit ${status}: ${stderr}`);
}

/** Runs Node on a terminal until it has written a text, and ends it. Returns how long the text took, in ms. */
async function untilWritten(args, text, { cwd, env }) {
  const start = performance.now();
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
  const tookMs = performance.now() - start;
  child.stdin.end();
  await closed;
  if (!written.includes(text)) throw new Error(`not written: ${text}`);
  return tookMs;
}

/** A process takes a whole number of steps; what else the machine does only adds to them. */
const fastest = (times) => Math.min(...times);
