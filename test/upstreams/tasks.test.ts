import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { type FakeTasks, startTasks, type TaskVendorName } from "../support/upstreams/tasks.ts";

const PATIENCE = { timeout: 30_000, interval: 20 };
const KEYS = { REPLICATE_API_TOKEN: "canary-replicate-token", BFL_API_KEY: "canary-bfl-api-key" };
const GRACE = ["--grace", "100ms"];
const RUNNING = { states: ["starting"] };

const entryOf = (preset: TaskVendorName, fake: FakeTasks, upstreamId: string) => ({
  ...{ preset, baseUrl: `${fake.api.url}/v1`, models: { [preset]: upstreamId } },
  ...{ origins: [fake.region.url, fake.files.url], pollSeconds: 0.02 },
});

let chain: Chain;
let replicate: FakeTasks;
let bfl: FakeTasks;

beforeAll(async () => {
  [replicate, bfl] = [await startTasks("replicate"), await startTasks("bfl")];
  const providers = [
    entryOf("replicate", replicate, "black-forest-labs/flux-2-pro"),
    entryOf("bfl", bfl, "flux-2-pro"),
  ];
  const models = [model("replicate"), model("bfl")];
  chain = await Chain.start({ models, providers }, KEYS, GRACE);
});

afterAll(async () => {
  await chain?.close();
  await Promise.all([replicate.close(), bfl.close()]);
});

const keyed = (key: string, prompt: string) =>
  chain.ask("/v1beta/models/replicate:generateContent", {
    method: "POST",
    headers: { "idempotency-key": key },
    body: JSON.stringify({
      contents: [{ role: "user", parts: [{ text: prompt }] }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: { imageSize: "1K" } },
    }),
  });

it("[TASK-1] [TASK-2] a service that is killed or stopped in any step polls the tasks that it knows, and pays for each picture once; only a lost answer is asked for again, with a mark", async () => {
  replicate.plan = () => RUNNING;
  replicate.files.setBehaviour(hostile.hang, "download");
  bfl.api.setBehaviour(hostile.late(60_000, { made: true }));
  const polled = await chain.submit("replicate", ["one", "two"]);
  const lost = await chain.submit("bfl", ["three"]);
  const live = keyed("k1", "live").catch(() => null);
  await vi.waitUntil(() => replicate.tasks.length === 3 && bfl.tasks.length === 1, PATIENCE);
  await vi.waitUntil(() => replicate.tasks.every(({ polls }) => polls > 1), PATIENCE);

  // While tasks are polled, and while the answer to another one is awaited.
  await chain.end("SIGKILL");
  await live;
  bfl.api.setBehaviour(null);
  const before = replicate.tasks.map(({ polls }) => polls);
  await chain.serve(GRACE);
  await vi.waitUntil(
    () => replicate.tasks.slice(0, 2).every(({ polls }, at) => polls > (before[at] ?? 0)),
    PATIENCE,
  );

  // A stop need not wait for known tasks.
  const stopped = chain.end("SIGTERM");
  expect(await stopped).toBe(0);
  replicate.plan = () => ({});
  for (const task of replicate.tasks) task.plan = {};
  await chain.serve();

  // While the results are fetched.
  await vi.waitUntil(() => replicate.count("download") === 2, PATIENCE);
  await chain.end("SIGKILL");
  replicate.files.setBehaviour(null, "download");
  await chain.serve(GRACE);

  for (const { id } of [polled, lost]) expect(await chain.until(id)).toMatchObject({ fail_count: 0 });
  const answer = await keyed("k1", "live");
  expect([answer.status, answer.headers.get("x-imgbatch-may-be-paid-twice")]).toEqual([200, null]);
  expect((await keyed("k1", "live")).headers.get("idempotency-replayed")).toBe("true");
  expect(replicate.tasks.map(({ prompt, charges }) => [prompt, charges]).sort()).toEqual([
    ["live", 1],
    ["one", 1],
    ["two", 1],
  ]);
  expect((await chain.items(polled.id)).filter(isMarked)).toEqual([]);
  expect((await chain.items(lost.id)).filter(isMarked)).toHaveLength(1);
  expect(bfl.charges()).toBe(2);
  expect((await chain.run(["admin", "check"])).code).toBe(0);
});

it("[TASK-1] a stop leaves a request as soon as its task is known, and a cancelled batch keeps what its tasks make", async () => {
  replicate.plan = () => RUNNING;
  replicate.api.setBehaviour(hostile.late(1000, { made: true }));
  const begun = replicate.tasks.length;
  const { id } = await chain.submit("replicate", ["five"]);
  await vi.waitUntil(() => replicate.tasks.length === begun + 1, PATIENCE);
  expect(await chain.end("SIGTERM")).toBe(0);
  await chain.serve(GRACE);
  replicate.api.setBehaviour(null);
  const task = replicate.tasks[begun];
  await vi.waitUntil(() => (task?.polls ?? 0) > 0, PATIENCE);
  await chain.ask(`/v1/images/batches/${id}/cancel`, { method: "POST" });
  if (task) task.plan = {};
  expect(await chain.until(id)).toMatchObject({ success_count: 1, fail_count: 0 });
  expect([replicate.tasks.length, task?.charges, task?.isCanceled]).toEqual([begun + 1, 1, false]);
});
