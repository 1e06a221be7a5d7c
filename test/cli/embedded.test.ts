import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { connectEmbedded } from "../../src/cli/connect/embedded.ts";
import { parseConfig } from "../../src/config/load.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { acquireDataLockPatiently } from "../../src/storage/data-lock.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { listening } from "../support/listening.ts";
import { BIN, cleanEnvironment, imgbatch, startNode } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const NOTE = /using the embedded service \(procedural drawings, not a model\)/g;

/** A directory with a prompt file, and the environment in which its data directory is below it. */
async function workplace(prompts: object[] = [{ prompt: "a red kite" }, { prompt: "a blue door" }]) {
  const cwd = await tempDir();
  writeFileSync(join(cwd, "p.jsonl"), prompts.map((line) => JSON.stringify(line)).join("\n"));
  const data = join(cwd, "data");
  return { cwd, data, env: cleanEnvironment({ IMGBATCH_DATA: data }) };
}

describe("the embedded service", () => {
  it("[EMBED-1] is started inside the command when there is none, says so once, and is gone afterwards", async () => {
    const { cwd, data } = await workplace([{ prompt: "a red kite" }]);
    const { code, stdout, stderr } = await runInProcess(["submit", "p.jsonl", "--data", data], { cwd });
    expect([code, stdout]).toEqual([0, "p-images\n"]);
    expect(stderr.match(NOTE)).toHaveLength(1);
    expect(stderr).toContain("for real images set GEMINI_API_KEY to your key and add --upstream google, or");
    expect(readdirSync(join(cwd, "p-images", "images"))).toEqual(["item_000001-red-kite.png"]);
    expect(existsSync(join(data, "server.json"))).toBe(false);
    expect(statSync(data).mode & 0o777).toBe(0o700);
  });

  it("[EMBED-1] says so only when images are made, not for a run that is there already", async () => {
    const { cwd, data } = await workplace([{ prompt: "a red kite" }]);
    const type = (...args: string[]) => runInProcess([...args, "--data", data], { cwd });
    expect((await type("submit", "p.jsonl", "--dry-run")).stderr).not.toMatch(NOTE);
    expect((await type("submit", "p.jsonl")).stderr.match(NOTE)).toHaveLength(1);
    for (const again of [["submit", "p.jsonl"], ["wait", "p-images"], ["retry", "p-images"], ["list"]])
      expect((await type(...again)).stderr).not.toMatch(NOTE);
    const generate = ["generate", "--file", "p.jsonl", "-o", "now"];
    expect((await type(...generate)).stderr.match(NOTE)).toHaveLength(1);
    expect((await type(...generate)).stderr).not.toMatch(NOTE);
  });

  it("is the running one when there is one on the data directory", async () => {
    const { cwd } = await workplace();
    const logLines: string[] = [];
    const { url, data } = await startTestService({ logLines });
    const { code } = await runInProcess(["submit", "p.jsonl", "--data", data], { cwd });
    expect(code).toBe(0);
    const runState = JSON.parse(readFileSync(join(cwd, "p-images", "imgbatch.json"), "utf8"));
    const look = ["status", runState.batches[0].id, "--base-url", url, "--data", data];
    const status = await runInProcess(look, { cwd });
    expect([status.code, status.stdout]).toEqual([0, expect.stringContaining("completed")]);
    expect(logLines.join("")).toContain('"method":"POST","path":"/v1/images/batches","status":200');
  });

  it("is shared by commands that start at the same moment", async () => {
    const { cwd, env, data } = await workplace();
    writeFileSync(join(cwd, "q.jsonl"), JSON.stringify({ prompt: "another file" }));
    const exits = await Promise.all(
      ["p.jsonl", "q.jsonl"].map((file) => imgbatch(["submit", file], { cwd, env })),
    );
    // The command that owns the service may end first; then the other one is told to run the same command again.
    for (const [i, exit] of exits.entries()) {
      if (exit.code === 0) continue;
      expect(exit.code).toBe(7);
      const again = ["submit", ["p.jsonl", "q.jsonl"][i] ?? "", "--data", data];
      expect((await runInProcess(again, { cwd })).code).toBe(0);
    }
    expect(readdirSync(join(cwd, "p-images", "images"))).toHaveLength(2);
    expect(readdirSync(join(cwd, "q-images", "images"))).toHaveLength(1);
    expect((await runInProcess(["admin", "check", "--data", data], { cwd })).code).toBe(0);
  });

  it("waits some seconds for an owner that does not answer, however long each attempt takes", async () => {
    const dataDirectory = await tempDir();
    onTestFinished(await acquireDataLockPatiently(dataDirectory, systemClock));
    const facts = { url: "http://127.0.0.1:1", pid: 1, workers: true, secret: "s".repeat(43), started_at: 0 };
    writeFileSync(join(dataDirectory, "server.json"), JSON.stringify(facts), { mode: 0o600 });
    const output = { warn: () => {}, note: () => {}, detail: () => {} };
    const { signal } = new AbortController();
    // Each attempt takes half of the patience.
    class SlowClock extends InstantClock {
      #looks = 0;
      override monotonicMs = () => ++this.#looks * 10_000;
    }
    const clock = new SlowClock();
    const embedding = { config: parseConfig({}, "test"), dataDirectory, needs: { workers: false } };
    await expect(connectEmbedded({ ...embedding, output, signal, clock })).rejects.toMatchObject({
      code: "DATA_DIRECTORY_IN_USE",
    });
    expect(clock.sleepsMs).toHaveLength(1);
  });
});

/** A paid upstream that answers when `open` is called, and the number of requests that have come. */
async function startPaidUpstream(cwd: string) {
  const image = (await tinyPng()).toString("base64");
  const opened = gate();
  const came = [gate(), gate(), gate()];
  let count = 0;
  const upstream = createServer((request, response) => {
    request.resume().on("end", async () => {
      came[count++]?.open();
      await opened.promise;
      response
        .setHeader("content-type", "application/json")
        .end(JSON.stringify({ data: [{ b64_json: image }] }));
    });
  });
  const baseUrl = `${await listening(upstream)}/v1`;
  const provider = { name: "card", type: "openai", baseUrl, models: ["*"], rateMultiplier: 0 };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ providers: [provider] }));
  return { came, open: opened.open, count: () => count };
}

describe("stopping while requests run that are paid", () => {
  const SUBMIT = ["submit", "p.jsonl", "-o", "out", "--max-cost", "1", "--config", "imgbatch.config.json"];
  const WAITING = "stopping: waiting for 1 request that is paid; a second Ctrl-C abandons it";

  /** Starts submit, and interrupts it when its request has come to the upstream and it says that it waits. */
  async function interrupted() {
    const { cwd, data, env } = await workplace([{ prompt: "a red kite" }]);
    const upstream = await startPaidUpstream(cwd);
    const running = startNode([BIN, ...SUBMIT], { cwd, env });
    const said = gate();
    let stderr = "";
    running.child.stderr?.on("data", (chunk) => {
      stderr += chunk;
      if (stderr.includes(WAITING)) said.open();
    });
    await upstream.came[0]?.promise;
    running.child.kill("SIGINT");
    await said.promise;
    const where = ["--data", data, "--config", "imgbatch.config.json"];
    const submit = (...more: string[]) => runInProcess([...SUBMIT, "--data", data, ...more], { cwd });
    return { cwd, upstream, running, again: Object.assign(submit, { where }) };
  }

  it("the first Ctrl-C waits for them and says so; the image is there for the next command", async () => {
    const { cwd, upstream, running, again } = await interrupted();
    upstream.open();
    expect((await running.exited).code).toBe(130);
    expect((await again()).code).toBe(0);
    expect(upstream.count()).toBe(1);
    expect(readFileSync(join(cwd, "out/results.jsonl"), "utf8")).not.toContain("paid twice");
  });

  it.each([
    ["stop", 4, 1, "the answers for 1 image were lost: at most"],
    ["once", 0, 2, "1 image may be paid twice, see out/results.jsonl"],
  ])(
    "the second one abandons them; the next command goes by the rule %s",
    async (rule, code, requests, said) => {
      const { cwd, upstream, running, again } = await interrupted();
      running.child.kill("SIGINT");
      const ended = await running.exited;
      expect(ended.code).toBe(130);
      expect(ended.stderr).toContain(
        "It asks nobody again for the image of the abandoned request, which may be paid",
      );
      upstream.open();
      const ran = await again("--unknown", rule);
      expect([ran.code, ran.stderr]).toEqual([code, expect.stringContaining(said)]);
      expect(upstream.count()).toBe(requests);
      const results = readFileSync(join(cwd, "out/results.jsonl"), "utf8");
      expect(results).toContain(rule === "once" ? "may be paid twice: " : '"code":"OUTCOME_UNKNOWN"');
      if (rule === "once") return;
      expect(ran.stderr).toContain("0 of 1 images on disk and verified, 1 unknown");
      expect(ran.stderr).toContain("next: imgbatch retry --include-lost out");
      // Nothing but a word of the person asks again.
      expect((await runInProcess(["retry", "out", "--max-cost", "1", ...again.where], { cwd })).code).toBe(4);
      expect(upstream.count()).toBe(1);
      const paid = await runInProcess(["retry", "out", "--include-lost", "--max-cost", "1", ...again.where], {
        cwd,
      });
      expect([paid.code, upstream.count()]).toEqual([0, 2]);
    },
  );
});
