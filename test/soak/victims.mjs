import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const QUICK = fileURLToPath(new URL("quick-service.mjs", import.meta.url));
const BIN = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
const { IMGBATCH_BASE_URL: _u, IMGBATCH_API_KEY: _k, IMGBATCH_DATA: _d, ...clean } = process.env;
/** One thread for files, so that the Nth call on it is the same call every time. */
const ENV = { ...clean, NO_COLOR: "1", UV_THREADPOOL_SIZE: "1" };

/** Whether strace is here and may watch other processes. */
export const hasStrace =
  process.platform === "linux" &&
  spawnSync("strace", ["-qq", "-e", "trace=none", "true"], { stdio: "ignore" }).status === 0;

/** Every system call at which a service is killed, and on which of its threads the call is made. */
export const KILL_CALLS = [
  { thread: "main", call: "fsync" },
  { thread: "main", call: "pwrite64" },
  { thread: "main", call: "unlink" },
  { thread: "main", call: "ftruncate" },
  { thread: "files", call: "fsync" },
  { thread: "files", call: "rename" },
  { thread: "files", call: "mkdir" },
  { thread: "files", call: "unlink" },
  { thread: "files", call: "rmdir" },
];

/** A child with its lines and its end. */
function watch(child) {
  let stderr = "";
  child.stderr?.on("data", (chunk) => {
    stderr = (stderr + chunk).slice(-4000);
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = once(child, "close").then(([code, signal]) => ({ code, signal, stderr }));
  // The answer to an order may be that the other end is dead.
  child.stdin?.on("error", () => {});
  return {
    child,
    exited,
    /** The next line as JSON; null when the child has ended. */
    said: async () => {
      const { value, done } = await lines.next();
      return done ? null : JSON.parse(value);
    },
  };
}

let spare = null;

/** A warm service that waits for its order; the one after it warms up meanwhile. */
function takeSpare() {
  const make = () => watch(spawn(process.execPath, [QUICK], { env: ENV, stdio: "pipe" }));
  const taken = spare ?? make();
  spare = make();
  return taken;
}

/** Ends the service that waits for an order that does not come. */
export async function dropSpare() {
  spare?.child.kill("SIGKILL");
  await spare?.exited;
  spare = null;
}

/**
 * Starts a service on a data directory. `kill` says how it will die: `{afterMs}` from now, `{step, after}` at a durable
 * step, `{thread, call, when}` at a system call; null leaves it alive. `ready` is its address, or null when it died first.
 */
export async function startVictim({ data, generations, boot, kill, isReal }) {
  const victim = isReal ? startReal(data, kill) : await startQuick({ data, generations, boot, kill });
  const timer = kill?.afterMs === undefined ? null : setTimeout(() => victim.end(), kill.afterMs);
  const exited = victim.exited.finally(() => clearTimeout(timer));
  const ready = victim.said().then((line) => line?.url ?? null);
  return { ...victim, exited, ready };
}

function startReal(data, kill) {
  const serve = [BIN, "serve", "--port", "0", "--data", data, "--log-level", "error"];
  const stdio = ["ignore", "pipe", "pipe"];
  const watched = ["-f", "-qq", "-o", "/dev/null", ...killAt(kill), process.execPath, ...serve];
  const isWatched = kill?.call !== undefined;
  const started = watch(
    isWatched
      ? spawn("strace", watched, { env: ENV, stdio, detached: true })
      : spawn(process.execPath, serve, { env: ENV, stdio }),
  );
  // A program under strace dies with its group.
  const end = (signal = "SIGKILL") => {
    if (!isWatched) started.child.kill(signal);
    else if (started.child.exitCode === null && started.child.signalCode === null) {
      process.kill(-started.child.pid, signal);
    }
  };
  return { ...started, end };
}

async function startQuick({ data, generations, boot, kill }) {
  const service = takeSpare();
  const { thread } = await service.said();
  if (kill?.call !== undefined) {
    const tid = kill.thread === "main" ? service.child.pid : thread;
    const strace = spawn("strace", ["-p", String(tid), "-o", "/dev/null", ...killAt(kill)], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    // It says on stderr that it is attached.
    await Promise.race([once(strace.stderr, "data"), once(strace, "close")]);
    strace.stderr.resume();
  }
  const die = kill?.step === undefined ? null : kill;
  service.child.stdin.write(`${JSON.stringify({ data, generations, boot, die })}\n`);
  return { ...service, end: (signal = "SIGKILL") => service.child.kill(signal) };
}

function killAt(kill) {
  if (kill?.call === undefined) return [];
  const { call, when } = kill;
  return ["-e", `trace=${call}`, "-e", `inject=${call}:signal=SIGKILL:when=${when}`];
}

/** How often a service makes each of the calls while `work` runs with it: what can be killed there. */
export async function countCalls({ data, generations, thread, call }, work) {
  const service = takeSpare();
  const { thread: files } = await service.said();
  const tid = thread === "main" ? service.child.pid : files;
  const strace = spawn("strace", ["-p", String(tid), "-e", `trace=${call}`], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let seen = "";
  strace.stderr.on("data", (chunk) => {
    seen += chunk;
  });
  const closed = once(strace, "close");
  await once(strace.stderr, "data");
  service.child.stdin.write(`${JSON.stringify({ data, generations, boot: 0, die: null })}\n`);
  const { url } = await service.said();
  await work(url);
  service.child.kill("SIGTERM");
  await service.exited;
  await closed;
  return seen.split("\n").filter((line) => line.startsWith(`${call}(`)).length;
}
