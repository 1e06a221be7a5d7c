import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { askProof, findRunning, isProof, readServer } from "../../../src/cli/connect/running-service.ts";
import { listModels } from "../../../src/client/batches.ts";
import { createServiceHttp } from "../../../src/client/service-http.ts";
import { runInProcess } from "../../support/cli-in-process.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { startTestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

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
    const server = readServer(service.data);
    if (server === null) throw new Error("server.json is not there");
    expect(isProof(await askProof(service.url), server)).toBe(true);
    const relay = await startStranger(0, async (path) => (await fetch(service.url + path)).text());
    const relayed = await askProof(relay.url);
    expect(relayed).not.toBeNull();
    expect(isProof(relayed, server)).toBe(false);
    chmodSync(join(service.data, "server.json"), 0o640);
    expect(await findRunning(service.data)).toBeNull();
  });

  it("[EMBED-4] proves itself before each request: another program that takes its port gets no key", async () => {
    const service = await startTestService({ workers: false });
    const running = await findRunning(service.data);
    if (running === null) throw new Error("no service was found");
    const { url: baseUrl, apiKey, confirm } = running;
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
