// Attacks a real service with whole-size hostile requests and measures what another key notices of it: the time that
// a status request takes, and the memory of the service during and after. Needs a build. Prints one JSON document.
//   node test/soak/hostile.mjs [--root DIR] [--only TEXT] [--seconds 6] [--settle 20]
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Agent, get } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs, promisify } from "node:util";
import { BODIES } from "./hostile/bodies.mjs";

const { values: flags } = parseArgs({
  options: {
    root: { type: "string", default: resolve(import.meta.dirname, "../..") },
    only: { type: "string", default: "" },
    seconds: { type: "string", default: "6" },
    settle: { type: "string", default: "20" },
  },
});
const BIN = join(flags.root, "bin/imgbatch.cjs");
const BATCHES = "/v1/images/batches";
const pause = promisify(setTimeout);

const data = await mkdtemp(join(tmpdir(), "imgbatch-hostile-"));
const LOG = join(data, "log");
const started = [];
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => fail(new Error(`stopped by ${signal}`)));
let fail;
const stopped = new Promise((_, reject) => {
  fail = reject;
});
try {
  process.stdout.write(`${JSON.stringify(await Promise.race([measureAll(), stopped]), null, 2)}\n`);
} finally {
  for (const child of started) child.kill("SIGKILL");
  await rm(data, { recursive: true, force: true });
}

async function measureAll() {
  const bare = `require("http").createServer((q,r)=>r.end("{}")).listen(0,function(){console.log(this.address().port)})`;
  const control = run(["-e", bare], {});
  const controlUrl = `http://127.0.0.1:${await nextLine(control)}`;
  let target = { ...(await startTarget()), controlUrl };
  await pause(1000);
  const idle = await calm(target);
  const attacks = {};
  for (const [label, kind, ...more] of attacksOn(target.theirs)) {
    if (!label.includes(flags.only)) continue;
    attacks[label] = await attack(target, kind, more).catch((error) => ({ failed: String(error) }));
    process.stderr.write(`${label}: ${JSON.stringify(attacks[label])}\n`);
    if (target.service.exitCode === null && target.service.signalCode === null) continue;
    attacks[label].killed_the_service = true;
    target = { ...(await startTarget()), controlUrl, theirs: target.theirs };
  }
  await pause(Number(flags.settle) * 1000);
  const after = await calm(target);
  const stopped = new Promise((done) => target.service.once("exit", done));
  target.service.kill("SIGTERM");
  const faults = readFileSync(LOG, "utf8")
    .split("\n")
    .filter((line) => line.includes('"level":"error"'));
  return { idle, attacks, after, exit: await stopped, errors_logged: faults.length, first_error: faults[0] };
}

/** A service with two keys, each with a finished batch: `id` is ours, `theirs` the attacker's. */
async function startTarget() {
  const service = run([BIN, "serve", "--data", data, "--port", "0"], { cwd: data, log: LOG });
  const { url } = JSON.parse(await nextLine(service));
  const key = JSON.parse(readFileSync(join(data, "credentials.json"), "utf8")).api_key;
  const name = `attacker-${service.pid}`;
  const made = run([BIN, "admin", "keys", "create", "--name", name, "--data", data, "--json"], {});
  const other = /imgb_[\w-]{43}/.exec(await allOf(made))?.[0];
  const [id, theirs] = [await submit(url, key), await submit(url, other)];
  return { service, url, pid: service.pid, key, other, id, theirs };
}

async function calm(target) {
  return { ...(await watch(target, 3000)), rss_mb: memory(target.pid).VmRSS };
}

function attacksOn(id) {
  const place = (request) => [`100 MB to ${request}`, "wrong place", request];
  return [
    ...Object.keys(BODIES).map((name) => [`body: ${name}`, "body", name]),
    place(`GET ${BATCHES}`),
    place(`POST ${BATCHES}/${id}/cancel`),
    place("PUT /nowhere"),
    ["endless body", "endless"],
    ["50 slow headers", "slow headers"],
    ["50 slow bodies", "slow body"],
    ["50 slow readers of a ZIP", "slow reader", "", `${BATCHES}/${id}/download`],
    // The last one: afterwards the batch is gone.
    place(`DELETE ${BATCHES}/${id}`),
  ];
}

/** Attacks for some seconds while the status of another key's batch is asked again and again. */
async function attack(target, kind, more) {
  const script = join(import.meta.dirname, "hostile/attacker.mjs");
  const attacker = run([script, target.url, target.other, kind, ...more], {});
  await nextLine(attacker);
  writeFileSync(`/proc/${target.pid}/clear_refs`, "5");
  const noticed = await watch(target, Number(flags.seconds) * 1000).finally(() =>
    attacker.stdin.write("stop\n"),
  );
  const answers = JSON.parse(await nextLine(attacker));
  const rss_peak_mb = memory(target.pid).VmHWM;
  await pause(2000);
  return { ...noticed, rss_peak_mb, rss_mb_2s_later: memory(target.pid).VmRSS, answers };
}

/**
 * Latencies of status requests, one each 20 ms on one connection, in ms; and beside it, asked in turns, those of a bare
 * `node:http` server in another process, which shows how busy the machine is.
 */
async function watch({ url, key, id, controlUrl }, ms) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const end = performance.now() + ms;
  const poll = async (address) => {
    const times = [];
    while (performance.now() < end) {
      const begin = performance.now();
      await ask(agent, address, key);
      times.push(performance.now() - begin);
      await pause(20);
    }
    times.sort((a, b) => a - b);
    const at = (share) => Math.round((times[Math.floor(times.length * share)] ?? times.at(-1)) * 10) / 10;
    return { asked: times.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
  };
  try {
    const [status, control] = await Promise.all([poll(`${url}${BATCHES}/${id}`), poll(controlUrl)]);
    return { ...status, control_p99_ms: control.p99_ms, control_max_ms: control.max_ms };
  } finally {
    agent.destroy();
  }
}

function ask(agent, url, key) {
  return new Promise((done, fail) => {
    const request = get(url, { agent, headers: { authorization: `Bearer ${key}` } }, (answer) => {
      answer.resume();
      answer.once("end", () =>
        answer.statusCode === 200 ? done() : fail(new Error(`status ${answer.statusCode}`)),
      );
    });
    request.once("error", fail);
  });
}

async function submit(url, key) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const items = Array.from({ length: 4 }, (_, i) => ({ prompt: `a red fox ${i}` }));
  const body = JSON.stringify({ model: "vendorx-3.1-flash-image", items });
  const answer = await fetch(url + BATCHES, { method: "POST", headers, body });
  const { id } = await answer.json();
  for (;;) {
    const batch = await (await fetch(`${url}${BATCHES}/${id}`, { headers })).json();
    if (batch.status === "completed") return id;
    await pause(100);
  }
}

/** Lines of `/proc/PID/status` that are sizes, in MB. */
function memory(pid) {
  const lines = readFileSync(`/proc/${pid}/status`, "utf8").matchAll(/^(\w+):\s+(\d+) kB$/gm);
  return Object.fromEntries([...lines].map(([, name, kb]) => [name, Math.round(Number(kb) / 1000)]));
}

function run(args, { cwd, log }) {
  const child = spawn(process.execPath, args, { cwd, stdio: ["pipe", "pipe", log ? "pipe" : "inherit"] });
  if (log) child.stderr.on("data", (text) => writeFileSync(log, text, { flag: "a" }));
  child.lines = createInterface({ input: child.stdout });
  started.push(child);
  return child;
}

function nextLine(child) {
  return new Promise((done) => child.lines.once("line", done));
}

async function allOf(child) {
  let text = "";
  for await (const line of child.lines) text += line;
  return text;
}
