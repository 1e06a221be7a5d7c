import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN, startNode } from "../support/processes.ts";
import { needTerminal, startOnTerminal } from "../support/real-terminal.ts";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import type { FakeUpstream, RequestKind } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import type { JobPlan } from "../support/upstreams/job-book.ts";
import { startNative } from "../support/upstreams/native.ts";
import { BATCH_MODEL, startNativeBatch } from "../support/upstreams/native-batch.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

const FOREVER = Number.POSITIVE_INFINITY;
const PROMPTS = ["a fox", "an owl", "a whale"];
const AGREED = ["--max-cost", "5", "--json"];
const FINISH = ["finish", "out", "--upstream", "near"];

/** A run whose images a vendor's job makes, and another upstream that could make them. */
class World {
  readonly chain: Chain;
  readonly far: Awaited<ReturnType<typeof startNativeBatch>>;
  readonly near: FakeUpstream;

  private constructor(chain: Chain, far: World["far"], near: FakeUpstream) {
    this.chain = chain;
    this.far = far;
    this.near = near;
  }

  static async start(plan: JobPlan): Promise<World> {
    const far = await startNativeBatch({ size: { width: 64, height: 64 } });
    const near = await startNative();
    far.book.plan = () => plan;
    const shared = { keyHeader: "x-goog-api-key", apiKeyEnv: "NATIVE_API_KEY", models: { m: BATCH_MODEL } };
    const providers = [
      { name: "far", type: "native-batch", baseUrl: far.url, pollSeconds: 0.2, ...shared },
      { name: "near", type: "native", baseUrl: near.url, ...shared },
    ];
    const chain = await Chain.prepare({
      models: [{ ...model("m"), jobPrice: 0.5 }],
      groups: [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }],
      providers,
    });
    await writeFile(join(chain.directory, "p.txt"), PROMPTS.join("\n"));
    worlds.push(new World(chain, far, near));
    return worlds.at(-1) as World;
  }

  /** Submits the prompts, and stops waiting once the upstream has the job. */
  async submit(): Promise<void> {
    endLimitWhen(() => this.far.book.jobs.length === 1);
    const args = ["submit", "p.txt", "-o", "out", "--max-cost", "5", "--timeout", LIMIT];
    expect((await this.chain.run(args)).code).toBe(124);
  }

  async run(...args: string[]) {
    const { code, stdout, stderr } = await this.chain.run(args);
    return { code, stderr, json: () => JSON.parse(stdout) };
  }

  file(name: string): Promise<string> {
    return readFile(join(this.chain.directory, "out", name), "utf8");
  }

  /** Who made each image, and whether its line says that it may be paid twice. */
  async lines(): Promise<{ provider: string; isMarked: boolean }[]> {
    const lines = (await this.file("results.jsonl"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    return lines.map((line) => ({ provider: line.provider, isMarked: isMarked(line) }));
  }

  /** Starts `finish` as a process of its own, and kills it once `isThen`. */
  async killOnce(isThen: () => boolean | Promise<boolean>): Promise<void> {
    const args = [BIN, ...FINISH, ...AGREED, ...this.chain.where];
    const killed = startNode(args, { cwd: this.chain.directory, env: this.chain.env });
    await vi.waitUntil(isThen, { timeout: 60_000, interval: 5 });
    killed.child.kill("SIGKILL");
    await killed.exited;
  }

  nearImages(): number {
    return this.near.requests.filter(({ kind }) => kind === "images").length;
  }

  /** How often each upstream was paid for each prompt. */
  payments(): Record<string, number[]> {
    const far = this.far.book.payments().map(({ prompt }) => prompt);
    const near = this.near.requests.filter(({ kind }) => kind === "images").map(({ bytes }) => String(bytes));
    return Object.fromEntries(
      PROMPTS.map((prompt) => [
        prompt,
        [far.filter((each) => each === prompt).length, near.filter((each) => each.includes(prompt)).length],
      ]),
    );
  }
}
const worlds: World[] = [];
afterEach(async () => {
  for (const { chain, far, near } of worlds.splice(0)) {
    await chain.close();
    await far.close();
    await near.close();
  }
});

it("[FINISH-1] finish ends a vendor's job, keeps what it made, and has another upstream make the rest at its price", async () => {
  const world = await World.start({ pendingMs: FOREVER, made: (_, at) => at === 1 });
  await world.submit();
  const refused = await world.run(...FINISH);
  expect([refused.code, world.far.book.running().length], refused.stderr).toEqual([8, 1]);
  expect(refused.stderr).toMatch(
    /\$0.10 each.*Nothing was sent.*\n.*to agree:\nnext: imgbatch finish out --upstream near .*--max-cost 0.30/,
  );
  await world.run("budget", "0.29/month", "--upstream", "near");
  const tight = await world.run(...FINISH, ...AGREED);
  expect([tight.code, world.far.book.running().length], tight.stderr).toEqual([8, 1]);
  expect(tight.stderr).toContain("The budget of near is $0.29 a month");
  await world.run("budget", "none", "--upstream", "near");
  // What the job holds becomes free when it ends.
  expect((await world.run("budget", "0.31/month")).code).toBe(0);
  const young = await world.run(...FINISH, "--after", "6h", ...AGREED);
  expect([young.code, world.far.book.running().length, young.json().error.message]).toEqual([
    7,
    1,
    expect.stringContaining("--after"),
  ]);
  const end = await world.run(...FINISH, ...AGREED);
  expect(end.code, end.stderr).toBe(0);
  expect(end.json()).toMatchObject({
    counts: { total: 3, success: 3 },
    actual_cost: 0.25,
    ended_jobs: { upstream: "far", delivered_count: 1, may_be_billed_count: 2 },
  });
  expect(end.stderr).toContain("far has delivered 1 image; it may still bill 2 images");
  expect(world.payments()).toEqual({ "a fox": [0, 1], "an owl": [1, 0], "a whale": [0, 1] });
  expect((await world.lines()).map(({ provider, isMarked }) => [provider, isMarked])).toEqual([
    ["near", true],
    ["far", false],
    ["near", true],
  ]);
  const again = await world.run(...FINISH, ...AGREED);
  expect([again.code, again.json().ended_jobs.may_be_billed_count]).toEqual([0, 2]);
  expect(again.stderr).toContain("nothing to do");
  const submit = await world.run("submit", "p.txt", "-o", "out", ...AGREED);
  expect([submit.code, submit.json().counts.success], submit.stderr).toEqual([0, 3]);
  expect(world.payments()["a fox"]).toEqual([0, 1]);
});

it("[FINISH-1] nothing is sent while the end of the job is not confirmed, and the same command goes on", async () => {
  const world = await World.start({ pendingMs: FOREVER, cancelMs: FOREVER });
  await world.submit();
  const asked = (kind: RequestKind) => world.far.requests.filter((request) => request.kind === kind).length;
  const before = asked("poll");
  // The whole window, during which the vendor is polled.
  endLimitWhen(() => asked("cancel") > 0 && asked("poll") >= before + 3, 30_000);
  const first = await world.run(...FINISH, ...AGREED);
  expect([first.code, first.json().error.code], first.stderr).toEqual([7, "JOB_NOT_ENDED"]);
  expect(first.stderr).toContain("\nrun the same command again: it goes on, and nothing is paid");
  expect(world.nearImages()).toBe(0);
  for (const job of world.far.book.jobs) job.plan = { pendingMs: FOREVER };
  // The job is polled again only after its run was named.
  endLimitWhen(() => false, 30_000);
  const end = await world.run(...FINISH, ...AGREED);
  expect([end.code, end.json().counts.success], end.stderr).toEqual([0, 3]);
  expect(Object.values(world.payments())).toEqual([
    [0, 1],
    [0, 1],
    [0, 1],
  ]);
});

it("[CANCEL-6] cancel keeps what a vendor's job has made, also when its end is confirmed only later", async () => {
  const world = await World.start({ pendingMs: FOREVER, cancelMs: FOREVER, made: (_, at) => at === 1 });
  await world.submit();
  const asked = () => world.far.requests.filter(({ kind }) => kind === "cancel").length;
  endLimitWhen(() => asked() > 0, 30_000);
  const first = await world.run("cancel", "out", "--json");
  expect([first.code, first.json().error.code], first.stderr).toEqual([7, "JOB_NOT_ENDED"]);
  for (const job of world.far.book.jobs) job.plan = { ...job.plan, cancelMs: 0 };
  endLimitWhen(() => false, 30_000);
  const end = await world.run("cancel", "out", "--json");
  expect([end.code, end.json().batches[0].success_count], end.stderr).toEqual([0, 1]);
  expect(end.stderr).toContain("1 image on disk");
  const there = await readdir(join(world.chain.directory, "out"), { recursive: true });
  expect(
    there.filter((name) => /[.](png|jpe?g)$/.test(name)),
    there.join(),
  ).toHaveLength(1);
  const usage = JSON.parse((await world.chain.run(["admin", "usage", "--json"])).stdout);
  expect(JSON.stringify(usage)).toContain("0.05");
  expect(world.far.book.jobs).toHaveLength(1);
});

it("[CANCEL-6] an update waits for a vendor's job that it cancels for half a minute, and the same command goes on", async () => {
  const world = await World.start({ pendingMs: FOREVER, cancelMs: FOREVER, made: (_, at) => at === 1 });
  await world.submit();
  await writeFile(join(world.chain.directory, "p.txt"), ["a red fox", ...PROMPTS.slice(1)].join("\n"));
  const update = ["submit", "p.txt", "-o", "out", "--update", ...AGREED];
  endLimitWhen(() => world.far.requests.some(({ kind }) => kind === "cancel"), 30_000);
  const first = await world.run(...update);
  expect([first.code, first.json().error.code], first.stderr).toEqual([7, "JOB_NOT_ENDED"]);
  expect(first.stderr).toContain("\nrun the same command again");
  expect(world.far.book.jobs).toHaveLength(1);
  for (const job of world.far.book.jobs) job.plan = { ...job.plan, cancelMs: 0 };
  world.far.book.plan = () => ({});
  endLimitWhen(() => false, 30_000);
  const end = await world.run(...update);
  expect([end.code, end.json().counts.success], end.stderr).toEqual([0, 3]);
  // The owl of the first job is kept; the red fox and the whale are the second one.
  expect(world.payments()).toMatchObject({ "a fox": [0, 0], "an owl": [1, 0], "a whale": [1, 0] });
});

it("[COST-7] a dry run says what is on hold when that is more than the price, since --max-cost must cover it", async () => {
  const world = await World.start({});
  const dry = ["submit", "p.txt", "-o", "out", "--dry-run"];
  const said = (await world.chain.run(dry)).stdout;
  expect(said).toContain(
    "estimated cost $0.15\n$0.30 is held until the images are made: --max-cost must cover it\n",
  );
  const { estimated_cost, max_cost } = (await world.run(...dry, "--json")).json();
  expect([estimated_cost, max_cost]).toEqual([0.15, 0.3]);
  expect((await world.run(...dry, "--max-cost", "0.29")).code).toBe(8);
  expect((await world.run(...dry, "--max-cost", "0.3")).code).toBe(0);
});

it("[FINISH-1] finish works with a service elsewhere, whose account pays", async () => {
  const world = await World.start({ pendingMs: FOREVER, made: (_, at) => at === 1 });
  const { chain } = world;
  await chain.serve();
  await world.run("admin", "accounts", "top-up", "default", "9");
  vi.stubEnv("IMGBATCH_API_KEY", chain.key);
  const there = ["--base-url", chain.url];
  const submitted = await runInProcess(["submit", "p.txt", "-o", "out", "--detach", ...there], {
    cwd: chain.directory,
  });
  expect(submitted.code, submitted.stderr).toBe(0);
  await vi.waitUntil(() => world.far.book.jobs.length === 1, { timeout: 60_000 });
  const end = await runInProcess([...FINISH, "--json", ...there], { cwd: chain.directory });
  expect([end.code, end.json()], end.stderr).toMatchObject([
    0,
    { counts: { success: 3 }, ended_jobs: { delivered_count: 1, may_be_billed_count: 2 } },
  ]);
  expect(world.payments()).toEqual({ "a fox": [0, 1], "an owl": [1, 0], "a whale": [0, 1] });
});

it("finish tells by name what it cannot do, and ends nothing", async () => {
  const world = await World.start({ pendingMs: FOREVER });
  await world.submit();
  await mkdir(join(world.chain.directory, "empty"));
  const said = async (...args: string[]) => {
    const { code, json } = await world.run("finish", ...args, ...AGREED);
    return [code, json().error.message];
  };
  expect(await said("out")).toEqual([2, expect.stringContaining("--upstream")]);
  expect(await said("out", "--upstream", "far")).toEqual([2, expect.stringContaining("with far already")]);
  expect(await said("out", "--upstream", "nowhere")).toEqual([2, expect.stringContaining("far, near")]);
  expect(await said("empty", "--upstream", "near")).toEqual([2, expect.stringContaining("imgbatch.json")]);
  expect(await said("elsewhere", "--upstream", "near")).toEqual([2, expect.stringContaining("elsewhere")]);
  expect(world.far.book.running()).toHaveLength(1);
});

it("[FINISH-1] [FINISH-2] a kill while finish asks for consent ends no job and buys nothing", async (context) => {
  needTerminal(context);
  const world = await World.start({ pendingMs: FOREVER });
  await world.submit();
  const { directory, where, env } = world.chain;
  const [, , ...named] = FINISH;
  const terminal = startOnTerminal([BIN, "finish", join(directory, "out"), ...named, ...where], {
    ...env,
  } as Record<string, string>);
  await terminal.until(/Pay that\?/);
  terminal.signal("SIGKILL");
  expect((await terminal.ended).code).toBe(-9);
  expect(world.far.book.running()).toHaveLength(1);
  expect(world.far.requests.filter(({ kind }) => kind === "cancel")).toEqual([]);
  const end = await world.run(...FINISH, ...AGREED);
  expect([end.code, end.json().counts.success], end.stderr).toEqual([0, 3]);
  expect(Object.values(world.payments())).toEqual(PROMPTS.map(() => [0, 1]));
});

type Moment =
  | [upstream: "far" | "near", kind: RequestKind, made: boolean]
  | "the plan is written"
  | "the last images come";
const MOMENTS: Record<string, Moment> = {
  "before the vendor hears of the end": ["far", "cancel", false],
  "before the vendor answers to the end": ["far", "cancel", true],
  "before the results of the job come": ["far", "download", true],
  "once it is written what the other upstream makes": "the plan is written",
  "before the other upstream hears of an image": ["near", "images", false],
  "before the other upstream answers": ["near", "images", true],
  "while the last images are downloaded": "the last images come",
};

it.each(Object.entries(MOMENTS))(
  "[FINISH-2] finish buys nothing twice without a mark, killed %s",
  async (_, moment) => {
    const world = await World.start({ pendingMs: FOREVER, made: (_line, at) => at === 1 });
    await world.submit();
    if (moment === "the plan is written")
      await world.killOnce(async () => (await world.file("imgbatch.json")).includes('"provider": "near"'));
    else if (moment === "the last images come") {
      const has = async () => (await readdir(join(world.chain.directory, "out"), { recursive: true })).join();
      // The job has made one image; the others come in a ZIP of their own.
      world.near.size = { width: 3000, height: 3000 };
      await world.killOnce(async () => /\.zip|(images.*){4}/.test(await has()) && world.nearImages() === 2);
    } else {
      const [upstream, kind, made] = moment;
      const { requests, setBehaviour } = world[upstream];
      const before = requests.filter((request) => request.kind === kind).length;
      setBehaviour(hostile.late(600_000, { made }), kind);
      await world.killOnce(() => requests.filter((request) => request.kind === kind).length > before);
      setBehaviour(null, kind);
    }
    const end = await world.run(...FINISH, ...AGREED);
    expect([end.code, end.json().counts?.success], end.stderr).toEqual([0, 3]);
    const lines = await world.lines();
    for (const [at, paid] of Object.values(world.payments()).entries()) {
      const times = paid.reduce((sum, count) => sum + count, 0);
      expect(times, JSON.stringify([world.payments(), lines])).toBeGreaterThan(0);
      if (times > 1) expect(lines[at]?.isMarked, JSON.stringify([world.payments(), lines])).toBe(true);
    }
    expect(world.far.book.running()).toEqual([]);
    const check = await world.run("admin", "check");
    expect(check.code, check.stderr).toBe(0);
  },
  120_000,
);
