import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import type { CommandContext } from "../../src/cli/command.ts";
import { opened, openService, withService } from "../../src/cli/connect/connect.ts";
import type { ConnectedService } from "../../src/cli/connect/connection.ts";
import { findRunning } from "../../src/cli/connect/running-service.ts";
import { explainStop } from "../../src/cli/interruption.ts";
import { getBatch } from "../../src/client/batches.ts";
import { listModels } from "../../src/client/models.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { ImgbatchError } from "../../src/contract/errors.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const NO_KEY = { env: { IMGBATCH_API_KEY: "" } };

it("a base URL without http:// is refused with the one that was meant", async () => {
  const cli = await createCli();
  const told = async (url: string) => (await cli.run(["models", "--base-url", url])).stderr;
  for (const url of ["127.0.0.1:8787", "localhost:8787", "images.example/api"])
    expect(await told(url)).toContain(`; did you mean http://${url}?`);
  for (const url of ["ftp://images.example", "images", "http://me:pw@images.example"])
    expect(await told(url)).not.toContain("did you mean");
});

it("a key that is piped in is used; an empty pipe or file is no key", async () => {
  const cli = await createCli();
  expect((await cli.run(["models", "--api-key-stdin"], { ...NO_KEY, stdin: `${FAKE_KEY}\n` })).code).toBe(0);
  await writeFile(join(cli.cwd, "none.key"), "\n");
  const asked = cli.fake.requests.length;
  for (const [args, source] of [
    [["models", "--api-key-stdin"], "standard input (--api-key-stdin) is empty"],
    [["models", "--api-key-file", "none.key"], "none.key (--api-key-file) is empty"],
  ] as const) {
    const { code, stderr } = await cli.here(args, NO_KEY);
    expect({ code, stderr }).toEqual({ code: 3, stderr: expect.stringContaining(source) });
  }
  expect(cli.fake.requests).toHaveLength(asked);
});

it("while the key does not come, Ctrl-C and the time limit are obeyed", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
  const open = { ...NO_KEY, stdin: null };
  const reads = join(cli.cwd, "reads.mjs");
  await writeFile(
    reads,
    'process.stdin.on("newListener", (name) => name === "readable" && process.stderr.write("reading"));',
  );
  const env = { ...NO_KEY.env, NODE_OPTIONS: `--import=${reads}` };
  const waiting = cli.start(["models", "--api-key-stdin", "--json"], { ...open, env });
  waiting.child.stderr.once("data", () => waiting.child.kill("SIGINT"));
  const late = ["submit", "p.jsonl", "--api-key-stdin", "--timeout", "500ms"];
  const [interrupted, timedOut] = await Promise.all([waiting.ended, cli.run(late, open)]);
  expect([interrupted.code, interrupted.json().error?.code]).toEqual([130, "INTERRUPTED"]);
  expect(timedOut.code).toBe(124);
  expect(timedOut.stderr).toContain("Standard input has not ended; nothing was sent.");
  expect(cli.fake.requests).toHaveLength(0);
});

it("the time limit ends the reading of prompts too", async () => {
  const cli = await createCli();
  for (const command of ["submit", "generate"]) {
    const { code, stderr } = await cli.run([command, "-", "--timeout", "300ms"], { stdin: null });
    expect({ code, stderr }).toEqual({ code: 124, stderr: expect.stringContaining("nothing was sent.") });
  }
});

it("a key is not read from a terminal, where all could see it", async () => {
  const { signal } = new AbortController();
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const output = { warn: () => {} } as never;
  const global = {
    baseUrl: "http://127.0.0.1:1",
    apiKeyStdin: true,
    data: await tempDir(),
  } as never;
  await expect(
    openService(
      global,
      { workers: false },
      { output, clock: systemClock, signal, stdin, cwd: await tempDir() },
    ),
  ).rejects.toMatchObject({
    code: "USAGE",
    message: expect.stringContaining("standard input is a terminal"),
  });
});

it("[CONF-3] a command reads the configuration of its own working directory, not of the process", async () => {
  const cwd = await tempDir();
  await writeFile(join(cwd, "imgbatch.config.json"), '{"unknown": 1}');
  const { code, stderr } = await runInProcess(["list"], { cwd });
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining("imgbatch.config.json") });
});

type Kind = ConnectedService["kind"];

const ON_DATA_DIRECTORY = {
  ...{ dataDirectory: "d", providers: [], upstream: null, disabled: () => [], noteDrawings: () => {} },
  ...{ failed: new AbortController().signal, paidRequests: () => 0, pause() {} },
  ...{ stopsWithCommand: false, goOn: async () => {} },
};

/** A context whose connections go to these addresses, one after the other. */
function contextOf(connections: { baseUrl: string; kind: Kind }[]) {
  const stopped: string[] = [];
  const notes: string[] = [];
  const note = (line: string) => void notes.push(line);
  const output = { note, warn: note, annotate() {}, detail() {}, progress() {}, settle() {}, event() {} };
  const connect = async (): Promise<ConnectedService> => {
    const next = connections.shift();
    if (next === undefined) throw new Error("no more connections");
    const stop = async () => void stopped.push(next.kind);
    const found = { ...next, apiKey: FAKE_KEY, isLocal: true, stop, ...ON_DATA_DIRECTORY };
    return opened(found, { output, clock: systemClock });
  };
  return {
    context: { output, connect, clock: systemClock, options: {} } as unknown as CommandContext,
    stopped,
    notes,
  };
}

async function liveUrl(): Promise<string> {
  const fake = await startFakeService();
  onTestFinished(() => fake.close());
  return fake.url;
}

async function deadUrl(): Promise<string> {
  const fake = await startFakeService();
  await fake.close();
  return fake.url;
}

it("when the service of another command ends, the work is done again with the next one", async () => {
  const connections = [
    { baseUrl: await deadUrl(), kind: "running" as const },
    { baseUrl: await liveUrl(), kind: "embedded" as const },
  ];
  const { context, stopped, notes } = contextOf(connections);
  const models = await withService(context, { workers: true }, async ({ http, kind }) =>
    kind === "running" ? http.json({ method: "GET", path: "/", maxRetries: 0 }) : listModels(http),
  );
  expect(models).toHaveLength(2);
  expect(stopped).toEqual(["running", "embedded"]);
  expect(notes).toHaveLength(1);
});

it("a service that was named by the caller is not replaced, and refusals are final", async () => {
  const dead = contextOf([{ baseUrl: await deadUrl(), kind: "remote" }]);
  const look = withService(dead.context, { workers: false }, ({ http }) =>
    getBatch(http, "x", { maxRetries: 0 }),
  );
  await expect(look).rejects.toMatchObject({ code: "NETWORK" });
  const shared = contextOf([{ baseUrl: await liveUrl(), kind: "running" }]);
  const missing = withService(shared.context, { workers: false }, ({ http }) => getBatch(http, "x"));
  await expect(missing).rejects.toMatchObject({ code: "BATCH_IMAGE_NOT_FOUND" });
  expect([...dead.stopped, ...shared.stopped]).toEqual(["remote", "running"]);
});

it("a submission that an earlier command left open does not mean that the service has ended", async () => {
  const unknown = (cause?: unknown) => new ImgbatchError("SUBMISSION_UNKNOWN", "left open", { cause });
  const work = async (error: Error) => {
    const { context, notes } = contextOf([
      { baseUrl: await deadUrl(), kind: "running" },
      { baseUrl: await deadUrl(), kind: "embedded" },
    ]);
    await withService(context, { workers: true }, () => Promise.reject(error)).catch(() => {});
    return notes.length;
  };
  expect(await work(unknown())).toBe(0);
  expect(await work(unknown(new ImgbatchError("SERVICE_GONE")))).toBeGreaterThan(0);
});

it("[CLI-10] a stop says whether the batch goes on without this command", () => {
  const stop = (kind: Kind, stopsWithCommand = false) =>
    explainStop(new ImgbatchError("INTERRUPTED"), { kind, stopsWithCommand }, ["b1"]).message;
  expect(stop("remote")).toBe("Interrupted; b1 goes on.");
  expect(stop("running")).toBe("Interrupted; b1 goes on while its service runs.");
  const stopped = "Interrupted; b1 is stopped, and nothing more is sent.";
  expect(stop("embedded", true)).toBe(stopped);
  const inAnother = "Interrupted; b1 is stopped, unless another command waits for it, too.";
  expect(stop("running", true)).toBe(inAnother);
  const other = new ImgbatchError("NETWORK");
  expect(explainStop(other, { kind: "embedded", stopsWithCommand: true }, ["b1"])).toBe(other);
});

/** Another program on the port, which notes what it is sent. */
async function startStranger(port: number, wordsFor: (path: string) => string | Promise<string>) {
  const keys: string[] = [];
  const paths: string[] = [];
  const stranger = createServer(async (request, response) => {
    paths.push(request.url ?? "");
    const { authorization } = request.headers;
    if (authorization !== undefined) keys.push(authorization);
    response.setHeader("content-type", "application/json").end(await wordsFor(request.url ?? ""));
  });
  await new Promise<void>((done) => stranger.listen(port, "127.0.0.1", done));
  onTestFinished(async () => {
    stranger.closeAllConnections();
    await new Promise((done) => stranger.close(done));
  });
  return { stranger, keys, paths, url: `http://127.0.0.1:${(stranger.address() as AddressInfo).port}` };
}

describe("the service that runs on a data directory", () => {
  it("[EMBED-4] never gives its key to a program that got the address of a killed service and repeats what it said", async () => {
    const cwd = await tempDir();
    writeFileSync(join(cwd, "p.jsonl"), JSON.stringify({ prompt: "a red kite" }));
    const { url, data, close } = await startTestService({ workers: false });
    const health = await fetch(`${url}/healthz?challenge=${"a".repeat(43)}`);
    const words = await health.text();
    const whole = { ...JSON.parse(words), ...JSON.parse(await (await fetch(`${url}/healthz`)).text()) };
    const said = readFileSync(join(data, "server.json"), "utf8");
    await close(0);
    const stranger = await startStranger(Number(new URL(url).port), () => JSON.stringify(whole));
    const looks = [["list"], ["ready"], ["doctor"], ["models", "--base-url", url]];
    for (const args of looks) {
      // A killed service leaves it, and a command that starts its own one removes it.
      writeFileSync(join(data, "server.json"), said, { mode: 0o600 });
      await runInProcess([...args, "--data", data], { cwd });
    }
    writeFileSync(join(data, "server.json"), said, { mode: 0o600 });
    expect((await runInProcess(["submit", "p.jsonl", "--data", data], { cwd })).code).toBe(0);
    expect(stranger.paths.length).toBeGreaterThanOrEqual(looks.length);
    expect(stranger.keys).toEqual([]);
  });

  it("[EMBED-4] takes no proof from another port, and none by a file that others could read", async () => {
    const service = await startTestService({ workers: false });
    const file = join(service.data, "server.json");
    const written = readFileSync(file, "utf8");
    expect(await findRunning(service.data)).toMatchObject({ baseUrl: service.url });
    const relay = await startStranger(0, async (path) => (await fetch(service.url + path)).text());
    writeFileSync(file, written.replace(service.url, relay.url));
    expect(await findRunning(service.data)).toBeNull();
    expect(relay.paths).toHaveLength(1);
    writeFileSync(file, written);
    chmodSync(file, 0o640);
    expect(await findRunning(service.data)).toBeNull();
  });

  it("[EMBED-4] proves itself before each request: another program that takes its port gets no key", async () => {
    const service = await startTestService({ workers: false });
    const running = await findRunning(service.data);
    if (running === null) throw new Error("no service was found");
    const { baseUrl, apiKey, confirm } = running;
    const http = createServiceHttp({ baseUrl, apiKey, confirm, clock: new InstantClock(), random: () => 0 });
    expect(await listModels(http)).not.toEqual([]);
    await service.close(0);
    const stranger = await startStranger(Number(new URL(baseUrl).port), () => '{"data":[],"proof":"x"}');
    await expect(listModels(http)).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("is no longer the service"),
    });
    expect([stranger.paths.length > 0, stranger.keys]).toEqual([true, []]);
  });
});
