import childProcess, { type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PATHS, TEST_HEADER } from "../contract/routes.ts";
import { environmentWith, putVariables, serviceVariables } from "../environment.ts";
import { packageFile } from "../kernel/package-file.ts";
import type { TestOptions, TestService } from "./test.d.cts";

/** The hooks of a test runner, as vitest and jest name them. */
interface Runner {
  afterEach?: (work: () => Promise<void>) => unknown;
}

/** How long the service may take to start. */
const PATIENCE_MS = 60_000;
const POLL_MS = 10;

/** The command that `exec` runs: it tells the service's address, and ends when the standard input closes. */
const WAIT = `
  const { env, stdin, stdout, exit } = process;
  const told = { url: env.IMGBATCH_BASE_URL, apiKey: env.IMGBATCH_API_KEY, dataDirectory: env.IMGBATCH_DATA };
  stdout.write(JSON.stringify(told) + "\\n");
  stdin.resume().on("end", () => exit());`;

interface Started {
  child: ChildProcess;
  service: Parameters<typeof serviceVariables>[0];
}

/**
 * Starts a service and waits for it without giving way, so that its address is in the environment when this returns: client
 * libraries read it when a client is made. The service ends when this process does, also by a kill: the pipe to it closes.
 */
function start({ vendor = "google", replay, upstream }: TestOptions): Started {
  if (!["google", "openai"].includes(vendor))
    throw new TypeError(`imgbatch: vendor ${JSON.stringify(vendor)}: must be google or openai`);
  const directory = mkdtempSync(join(tmpdir(), "imgbatch-test-"));
  const [told, complaints] = [join(directory, "told"), join(directory, "complaints")];
  const flags = ["--vendor", "google"];
  if (replay !== undefined) flags.push("--replay", replay, "--upstream", upstream ?? vendor);
  const program = [packageFile("bin/imgbatch.cjs"), "exec", ...flags, "--", process.execPath, "-e", WAIT];
  const outputs = [told, complaints].map((path) => openSync(path, "a"));
  // What the runner wants of its own processes is not for these.
  const env = environmentWith({ NODE_OPTIONS: undefined, NODE_V8_COVERAGE: undefined });
  const child = childProcess.spawn(process.execPath, program, { stdio: ["pipe", ...outputs], env });
  for (const output of outputs) closeSync(output);
  child.on("error", () => {});
  child.stdin?.on("error", () => {});
  child.unref();
  (child.stdin as { unref?(): void } | null)?.unref?.();
  try {
    return { child, service: JSON.parse(lineOf(told, complaints)) };
  } catch (error) {
    child.kill();
    throw error;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Waits for the first line of a file. Throws what the other file says when there is an error in it, or after `PATIENCE_MS`. */
function lineOf(told: string, complaints: string): string {
  const turn = new Int32Array(new SharedArrayBuffer(4));
  for (let waited = 0; waited < PATIENCE_MS; waited += POLL_MS) {
    const [line, end] = readFileSync(told, "utf8").split("\n");
    if (line !== undefined && end !== undefined) return line;
    Atomics.wait(turn, 0, 0, POLL_MS);
    if (/^error: .*\n/m.test(readFileSync(complaints, "utf8"))) break;
  }
  // What comes behind the error says what to do.
  Atomics.wait(turn, 0, 0, 200);
  const words = readFileSync(complaints, "utf8").trim() || `no answer within ${PATIENCE_MS / 1000} seconds`;
  throw new Error(`imgbatch has not started for the tests: ${words}`);
}

function clientOf({ service: { url, apiKey } }: Started): TestService {
  const call = async (method: string, path: string, test: string | undefined, body?: object) => {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      ...(test === undefined ? {} : { [TEST_HEADER]: test }),
    };
    // Tests may have put something else in the place of `fetch`.
    const asked = request(url + path, { method, headers, agent: false });
    asked.end(body === undefined ? undefined : JSON.stringify(body));
    const [answer] = await once(asked, "response");
    let text = "";
    for await (const chunk of answer.setEncoding("utf8")) text += chunk;
    const value = text === "" ? null : JSON.parse(text);
    if (answer.statusCode >= 400) throw new Error(`imgbatch: ${value.error.message}`);
    return value;
  };
  return {
    url,
    key: apiKey,
    fail: async (fault, test) => void (await call("POST", PATHS.testFaults, test, fault)),
    requests: async (test) => (await call("GET", PATHS.testRequests, test)).requests,
    reset: async (test) => {
      await call("DELETE", PATHS.testFaults, test);
      await call("DELETE", PATHS.testRequests, test);
    },
  };
}

/** Puts the variables of a service into the environment. Returns what takes them back. */
function publish({ service }: Started): () => void {
  const { NO_PROXY, no_proxy } = environmentWith({});
  return putVariables(serviceVariables(service, NO_PROXY ?? no_proxy));
}

/** Starts a service of its own. It ends with `stop`, at the latest with this process. */
export async function startImgbatch(
  options: TestOptions = {},
): Promise<TestService & { stop(): Promise<void> }> {
  const started = start(options);
  const unpublish = publish(started);
  const { child } = started;
  const stop = async () => {
    unpublish();
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.ref();
    child.stdin?.end();
    await ended;
  };
  return { ...clientOf(started), stop };
}

/** What the test files of one worker share. Jest gives each file modules of its own, except those of Node. */
const SHARED = Symbol.for("imgbatch.test");
const shared = childProcess as typeof childProcess & { [SHARED]?: Map<string, Started> };

/**
 * Gives the tests of a file a service, one for each worker of the runner: the next file with the same options gets it again.
 * After each test, faults end and the requests are forgotten.
 */
export function useImgbatch(options: TestOptions = {}, runner: Runner = globalThis as Runner): TestService {
  const { afterEach } = runner;
  if (afterEach === undefined)
    throw new Error(
      "imgbatch: useImgbatch is for vitest and jest, and found no afterEach; anything else takes startImgbatch",
    );
  shared[SHARED] ??= new Map();
  const known = shared[SHARED];
  const name = JSON.stringify([process.cwd(), options.vendor, options.replay, options.upstream]);
  const before = known.get(name);
  const started = before !== undefined && before.child.exitCode === null ? before : start(options);
  known.set(name, started);
  publish(started);
  const service = clientOf(started);
  afterEach(() => service.reset());
  return service;
}
