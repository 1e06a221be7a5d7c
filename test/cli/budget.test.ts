import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { periodOf, requireBudget, scopeOfUpstream } from "../../src/domain/billing/budget.ts";
import { DEFAULT_OPTIONS } from "../../src/domain/ports/image-provider.ts";
import { holdForRecording } from "../../src/domain/realtime/holds.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { onEachDialect } from "../support/dialects.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeUpstream, madeAfter, tinyPng, troubled } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { content, errorOf, generate } from "../support/realtime.ts";
import { allowKeyFile } from "../support/secrets.ts";
import { items, MODEL, openKey, startTestService } from "../support/service.ts";
import { joinAs, openBatchRecord } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";
import { Chain, model } from "../support/upstreams/chain.ts";
import { startNative } from "../support/upstreams/native.ts";
import { BATCH_MODEL } from "../support/upstreams/native-batch.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

const CONSENT = { "x-imgbatch-max-cost": "9" };

it("[BUDGET-1] a budget over time counts batches and real time of all runs, refuses before anything is sent, and shows what is left", async () => {
  const upstream = new FakeUpstream("vendor");
  const service = await startTestService({ providers: [upstream] });
  const budget = async (...args: string[]) => {
    const ran = await runInProcess(["budget", "--data", service.data, "--json", ...args], {
      cwd: service.data,
    });
    expect(ran.code, ran.stderr).toBe(0);
    return JSON.parse(ran.stdout);
  };
  expect(await budget("0.15/month")).toMatchObject({
    budgets: [{ upstream: null, usd: 0.15, per: "month", spent: 0, held: 0, left: 0.15 }],
    months: [],
  });
  const { id } = await service.submit({ model: MODEL, task_name: "foxes", items: items(2) }, CONSENT);
  expect(await service.until(id)).toMatchObject({ success_count: 2, actual_cost: 0.067 });
  expect((await generate(service, content("x"), { headers: CONSENT })).status).toBe(200);
  const sent = upstream.requests.length;
  await expect
    .poll(() => budget())
    .toMatchObject({
      budgets: [{ spent: 0.134, held: 0, left: 0.016 }],
      months: [
        { upstream: "vendor", run: "foxes", spent: 0.067 },
        { upstream: "vendor", run: null, spent: 0.067 },
      ],
    });
  const refused = await generate(service, content("y"), { headers: CONSENT });
  expect([refused.status, (await errorOf(refused)).message]).toEqual([
    402,
    expect.stringContaining("The budget is $0.15 a month: $0.134 are spent and $0.00 held in this month"),
  ]);
  await expect(service.submit({ model: MODEL, items: items(1) }, CONSENT)).rejects.toThrow();
  expect(upstream.requests).toHaveLength(sent);
  expect((await budget("none")).budgets).toEqual([]);
  expect((await generate(service, content("y"), { headers: CONSENT })).status).toBe(200);
  await service.expectBooks();
});

it("[BUDGET-1] a dry run that a budget would refuse ends as the run does", async () => {
  const upstream = new FakeUpstream("google");
  const service = await startTestService({ providers: [upstream] });
  const cwd = await tempDir();
  const keyFile = join(await tempDir(), "key");
  await writeFile(keyFile, service.credentials.api_key);
  allowKeyFile(keyFile);
  await writeFile(join(cwd, "p.jsonl"), '{"prompt":"a fox"}\n{"prompt":"an owl"}\n');
  const at = ["--base-url", service.url, "--api-key-file", keyFile];
  const submit = (...args: string[]) => runInProcess(["submit", "p.jsonl", ...at, ...args], { cwd });
  const budget = (...args: string[]) => runInProcess(["budget", "--data", service.data, ...args], { cwd });
  expect((await budget("0.09/month")).code).toBe(0);
  expect((await submit("--dry-run")).code).toBe(0);
  expect((await budget("0.05/month", "--upstream", "google")).code).toBe(0);
  const dry = await submit("--dry-run");
  expect([dry.code, dry.stderr]).toEqual([
    8,
    expect.stringContaining(
      "The budget of google is $0.05 a month: $0.05 of it is left, and this needs $0.0804",
    ),
  ]);
  expect((await budget("0.05/month", "--upstream", "openai")).code).toBe(0);
  expect((await budget("none", "--upstream", "google")).code).toBe(0);
  expect((await submit("--dry-run")).code).toBe(0);
  expect(upstream.requests).toHaveLength(0);
});

it("[BUDGET-1] a run of several batches that a budget does not cover as a whole sends nothing", async () => {
  const upstream = await startNative();
  const chain = await Chain.prepare({
    limits: { itemsPerBatch: 2 },
    models: [model("m")],
    groups: [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }],
    providers: [
      {
        ...{ name: "near", type: "native", baseUrl: upstream.url, keyHeader: "x-goog-api-key" },
        ...{ apiKeyEnv: "NATIVE_API_KEY", models: { m: BATCH_MODEL } },
      },
    ],
  });
  onTestFinished(async () => {
    await chain.close();
    await upstream.close();
  });
  await writeFile(
    join(chain.directory, "p.txt"),
    ["a fox", "an owl", "a whale", "a hen", "a cat"].join("\n"),
  );
  const submit = () => chain.run(["submit", "p.txt", "-o", "out", "--max-cost", "0.50", "--json"]);
  const made = () => upstream.requests.filter(({ kind }) => kind === "images").length;
  expect((await chain.run(["budget", "0.45/month"])).code).toBe(0);
  const refused = await submit();
  expect([refused.code, JSON.parse(refused.stdout).error.message]).toEqual([
    8,
    expect.stringMatching(
      /budget is \$0.45 a month: \$0.45 of it is left, and this needs \$0.50 on hold. Nothing was sent/,
    ),
  ]);
  expect(made()).toBe(0);
  expect((await chain.run(["budget", "0.50/month"])).code).toBe(0);
  endLimitWhen(() => made() > 0);
  // What an unfinished run holds is no reason to refuse the rest of it.
  const stopped = await chain.run(["submit", "p.txt", "-o", "out", "--max-cost", "0.50", "--timeout", LIMIT]);
  expect(stopped.code, stopped.stderr).toBe(124);
  const done = await submit();
  expect([done.code, made()], done.stderr).toEqual([0, 5]);
  const again = await submit();
  expect([again.code, made()], again.stderr).toEqual([0, 5]);
});

it("[BUDGET-1] a run whose answers were lost is found and finished, although it has used up the budget itself", async () => {
  const upstream = await startNative();
  const chain = await Chain.prepare({
    models: [model("m")],
    groups: [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }],
    providers: [
      {
        name: "near",
        type: "native",
        baseUrl: upstream.url,
        keyHeader: "x-goog-api-key",
        apiKeyEnv: "NATIVE_API_KEY",
        models: { m: BATCH_MODEL },
      },
    ],
  });
  onTestFinished(async () => {
    await chain.close();
    await upstream.close();
  });
  await writeFile(join(chain.directory, "p.txt"), "a fox\nan owl");
  const submit = (...more: string[]) =>
    chain.run(["submit", "p.txt", "-o", "out", "--max-cost", "0.20", "--json", ...more]);
  expect((await chain.run(["budget", "0.20/month"])).code).toBe(0);
  expect((await submit()).code).toBe(0);
  const file = join(chain.directory, "out", "imgbatch.json");
  const state = JSON.parse(await readFile(file, "utf8"));
  for (const batch of state.batches) Object.assign(batch, { id: null, state: "unknown", status: null });
  await writeFile(file, JSON.stringify({ ...state, finished_at: null }));
  expect((await submit("--dry-run")).code).toBe(0);
  const found = await submit();
  expect([found.code, JSON.parse(found.stdout).counts], found.stderr).toMatchObject([0, { success: 2 }]);
  expect(upstream.requests.filter(({ kind }) => kind === "images")).toHaveLength(2);
});

it("[BUDGET-1] a service gives each account the budget of its configuration", async () => {
  const upstream = new FakeUpstream("vendor");
  const config = { limits: { budget: { usd: 0.07, per: "day" } } };
  const service = await startTestService({ workers: false, providers: [upstream], config });
  expect((await generate(service, content("x"), { headers: CONSENT })).status).toBe(200);
  expect((await generate(service, content("y"), { headers: CONSENT })).status).toBe(402);
  await service.close(0);
  const next = await startTestService({ data: service.data, workers: false, providers: [upstream] });
  expect((await generate(next, content("y"), { headers: CONSENT })).status).toBe(200);
});

describe("the images of one real-time request", () => {
  /** The first of two images fails at the first upstream; the other one waits there. */
  async function begun(budgetOfSecond: string) {
    const [first, second] = [new FakeUpstream("google"), new FakeUpstream("openai")];
    const end = gate();
    onTestFinished(() => end.open());
    second.answer = madeAfter(end);
    first.answer = (request, signal) =>
      request.outputIndex === 0 ? Promise.reject(troubled("limited")) : madeAfter(end)(request, signal);
    const service = await startTestService({ workers: false, providers: [first, second] });
    const budget = async (...args: string[]) => {
      const { stdout } = await runInProcess(["budget", "--data", service.data, "--json", ...args], {
        cwd: service.data,
      });
      return JSON.parse(stdout).budgets.map(({ upstream, held }: { upstream: string; held: number }) => [
        upstream,
        held,
      ]);
    };
    await budget("1/day", "--upstream", "google");
    await budget(budgetOfSecond, "--upstream", "openai");
    const answer = fetch(`${service.url}/v1/images/generations`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${service.credentials.api_key}`,
        ...CONSENT,
      },
      body: JSON.stringify({ model: MODEL, prompt: "a fox", n: 2 }),
    });
    return { service, second, end, budget, answer };
  }

  it("[BUDGET-1] count each for the upstream that makes it", async () => {
    const { service, end, budget, answer } = await begun("1/day");
    await expect
      .poll(() => budget())
      .toEqual([
        ["google", 0.067],
        ["openai", 0.067],
      ]);
    end.open();
    expect((await answer).status).toBe(200);
    await service.expectBooks();
  });

  it("[BUDGET-1] go to no other upstream whose budget does not cover them", async () => {
    const { service, second, end, budget, answer } = await begun("0.05/day");
    end.open();
    // The other image is made: the request has an answer.
    expect(((await (await answer).json()) as { data: object[] }).data).toHaveLength(1);
    expect(second.requests).toEqual([]);
    expect(await budget()).toEqual([
      ["google", 0],
      ["openai", 0],
    ]);
    await service.expectBooks();
  });
});

onEachDialect("a recording", (open) => {
  it("[BUDGET-1] counts in the budgets also where the default account has no key", async () => {
    const stores = await open();
    const clock = new FakeClock();
    const deps = { stores, clock, ids: randomIds, worker: await joinAs(stores, "w") };
    const request = { model: "m", options: DEFAULT_OPTIONS };
    const hold = (microUsd: number) => holdForRecording(deps, request, "vendor", microUsd);
    expect(await hold(60)).toBeNull();
    await stores.write((tx) => tx.budgets.put({ scope: "data", limitMicroUsd: 100, per: "day" }));
    await expect(hold(60)).rejects.toThrow("there is none");
    await openKey(stores, { account: "team" });
    const held = await hold(60);
    await expect(hold(60)).rejects.toMatchObject({ code: "REALTIME_INSUFFICIENT_BALANCE" });
    await held?.captured(await tinyPng());
    await expect(hold(41)).rejects.toThrow("$0.00006 are spent");
    expect(await hold(40)).not.toBeNull();
  });
});

it("a budget that is typed wrongly is refused with what would be right", async () => {
  for (const text of ["20", "20/week", "x/day", "-1/day"]) {
    const { code, stderr } = await runInProcess(["budget", "--", text], { cwd: "." });
    expect([code, stderr], text).toEqual([2, expect.stringContaining("20/month")]);
  }
});

it("the periods of a budget are days and months of UTC", () => {
  const now = Date.UTC(2026, 11, 31, 23, 59);
  expect(periodOf("day", now)).toEqual({ fromMs: Date.UTC(2026, 11, 31), beforeMs: Date.UTC(2027, 0, 1) });
  expect(periodOf("month", now)).toEqual({ fromMs: Date.UTC(2026, 11, 1), beforeMs: Date.UTC(2027, 0, 1) });
});

onEachDialect("a budget", (open) => {
  it("of an upstream counts what that one makes alone", async () => {
    const stores = await open();
    const { id, accountId, provider } = await openBatchRecord(stores, 1);
    const batch = await stores.read.batches.byId(id);
    const holdMicroUsd = batch?.holdMicroUsd ?? 0;
    const refusal = (name: string, limitMicroUsd: number) =>
      stores
        .write(async (tx) => {
          await tx.budgets.put({ scope: scopeOfUpstream(name), limitMicroUsd, per: "day" });
          await requireBudget(tx, accountId, [{ provider, microUsd: 1 }], 1, (message) => new Error(message));
          await tx.budgets.remove(scopeOfUpstream(name));
          return "none";
        })
        .catch((error: Error) => error.message);
    expect(await refusal("another", 0)).toBe("none");
    expect(await refusal(provider, holdMicroUsd)).toBe("none");
    expect(await refusal(provider, holdMicroUsd - 1)).toContain(`of ${provider}`);
    expect(await stores.read.budgets.list()).toEqual([]);
    expect(await stores.read.budgets.spent({ fromMs: 0, beforeMs: 1e15 })).toEqual([]);
  });
});
