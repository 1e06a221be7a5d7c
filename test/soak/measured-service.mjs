import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const pause = promisify(setTimeout);

/**
 * Starts a service of its own from a checkout, runs the work with it, and kills it. `peak` is the most memory in MB since
 * the work began. Default: no configuration.
 */
export async function withService(root, work, { config = null, env = {} } = {}) {
  const data = await mkdtemp(join(tmpdir(), "imgbatch-measured-"));
  const file = join(data, "soak.json");
  if (config) writeFileSync(file, JSON.stringify(config));
  const args = ["serve", "--data", data, "--port", "0", ...(config ? ["--config", file] : [])];
  const service = spawn(process.execPath, [resolve(root, "bin/imgbatch.cjs"), ...args], {
    cwd: data,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    const lines = createInterface({ input: service.stdout })[Symbol.asyncIterator]();
    const { url } = JSON.parse((await lines.next()).value);
    const { api_key: key } = JSON.parse(await readFile(join(data, "credentials.json"), "utf8"));
    await pause(1000);
    const idle = memory(service.pid).VmRSS;
    writeFileSync(`/proc/${service.pid}/clear_refs`, "5");
    const now = () => memory(service.pid).VmRSS;
    return await work({ url, key, data, idle, now, peak: () => memory(service.pid).VmHWM });
  } finally {
    service.kill("SIGKILL");
    await once(service, "close");
    await rm(data, { recursive: true, force: true });
  }
}

/** Posts a body; the status and text of the answer. */
export function send(url, key, body) {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "content-length": body.length,
  };
  return new Promise((done, fail) => {
    const sent = request(url, { method: "POST", headers, agent: false }, async (answer) => {
      let text = "";
      for await (const part of answer.setEncoding("utf8")) if (text.length < 2000) text += part;
      done({ status: answer.statusCode, text });
    });
    sent.once("error", fail);
    sent.end(body);
  });
}

/** Asks for an address again and again; how long the answers took, in ms. */
export async function watch(url, everyMs, signal) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  while (!signal.aborted) {
    const begin = performance.now();
    await new Promise((done, fail) => {
      request(url, { agent }, (answer) => {
        answer.resume();
        answer.once("end", done);
      })
        .once("error", fail)
        .end();
    });
    times.push(performance.now() - begin);
    await pause(everyMs);
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  const at = (share) => Math.round((times[Math.floor(times.length * share)] ?? times.at(-1)) * 10) / 10;
  return { asked: times.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

/** Lines of `/proc/PID/status` that are sizes, in MB. */
function memory(pid) {
  const lines = readFileSync(`/proc/${pid}/status`, "utf8").matchAll(/^(\w+):\s+(\d+) kB$/gm);
  return Object.fromEntries([...lines].map(([, name, kb]) => [name, Math.round(Number(kb) / 1000)]));
}
