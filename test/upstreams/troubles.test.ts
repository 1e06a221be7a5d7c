import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import type { FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { startNative } from "../support/upstreams/native.ts";
import { startOpenai } from "../support/upstreams/openai.ts";
import { DIALECTS } from "../support/upstreams/openai-dialects.ts";
import { startSdapi } from "../support/upstreams/sdapi.ts";
import { NATIVE_TROUBLES, OPENAI_TROUBLES, type Row, SDAPI_TROUBLES } from "./trouble-rows.ts";

interface Case extends Row {
  id: string;
  fake: FakeUpstream;
  batch: string;
}

/** Every row has an upstream, a provider and a model of its own, and all of them are one service. */
const cases = new Map<string, Case>();
let chain: Chain;

async function fakeOf(row: Row) {
  const common = { timeoutSeconds: row.timeoutSeconds ?? 20 };
  if (row.service === "native") {
    const fake = await startNative();
    const entry = { baseUrl: fake.url, apiKeyEnv: "NATIVE_API_KEY", keyHeader: "x-goog-api-key" };
    return { fake, entry: { type: "native", ...common, ...entry }, model: "gemini-3.1-flash-image" };
  }
  if (row.service === "sdapi") {
    const fake = await startSdapi();
    return { fake, entry: { type: "sdapi", ...common, baseUrl: fake.url }, model: "v1-5-pruned" };
  }
  const dialect = row.dialect ?? DIALECTS.openai;
  const fake = await startOpenai({ dialect });
  const baseUrl = fake.url + dialect.base;
  const entry = { baseUrl, path: dialect.path, apiKeyEnv: "OPENAI_API_KEY", responseFormat: "omit" };
  return { fake, entry: { type: "openai", ...common, ...entry }, model: dialect.model };
}

beforeAll(async () => {
  const rows = [...NATIVE_TROUBLES, ...OPENAI_TROUBLES, ...SDAPI_TROUBLES];
  const providers = [];
  const models = [];
  for (const [at, row] of rows.entries()) {
    const id = `row-${at + 1}`;
    const { fake, entry, model: upstreamId } = await fakeOf(row);
    fake.size = SMALL;
    fake.setBehaviour(row.behaviour(fake), row.towards);
    if (row.towards) fake.setBehaviour(row.images ?? null);
    cases.set(`${row.service}: ${row.name}`, { ...row, id, fake, batch: "" });
    providers.push({ name: id, models: { [id]: upstreamId }, ...entry, ...row.entry });
    models.push(model(id));
  }
  chain = await Chain.startHere({ models, providers });
  // The owner of the service, whose key the chain has, may read all that upstreams say.
  const created = await runInProcess(["admin", "keys", "create", "--json", ...chain.where], {
    cwd: chain.directory,
  });
  chain.key = String(created.json().key);
  for (const one of cases.values()) one.batch = (await chain.submit(one.id, [one.name])).id;
});

afterAll(async () => {
  await chain?.close();
  for (const { fake } of cases.values()) await fake.close();
});

const known = [...NATIVE_TROUBLES, ...OPENAI_TROUBLES, ...SDAPI_TROUBLES];
const named = (kinds: readonly Row["fate"][]) =>
  known.filter((row) => kinds.includes(row.fate)).map((row) => `${row.service}: ${row.name}`);

function caseOf(name: string): Case {
  const found = cases.get(name);
  if (!found) throw new Error(`there is no row ${name}`);
  return found;
}

async function outcome(one: Case) {
  const batch = await chain.until(one.batch);
  const [item] = await chain.items(one.batch);
  if (!item) throw new Error("the batch has no item");
  return { batch, item };
}

/** The parts of an item that a caller who is not the owner may read. */
const told = (...parts: unknown[]) => JSON.stringify(parts);

describe("an upstream that", () => {
  it.each(named(["final"]))(
    "refuses for good (%s) is asked once, and its words reach the caller",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect(batch).toMatchObject({ status: "completed", fail_count: 1, actual_cost: 0 });
      expect(item).toMatchObject({ status: "failed", error: { source: "provider" } });
      expect(one.codes).toContain(item.error?.code);
      expect([one.fake.asked(one.name), isMarked(item)]).toEqual([1, false]);
      if (one.words) expect(item.error?.message).toContain(one.words);
    },
  );

  it.each(named(["retried"]))(
    "says that it made nothing (%s) is asked again, without a mark",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect(batch).toMatchObject({ status: "completed", success_count: 1, actual_cost: expect.any(Number) });
      expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["success", one.asked, false]);
      expect(one.fake.bill.get(one.name)).toHaveLength(1);
      const [first, second] = one.fake.requests.filter((request) => request.prompt === one.name);
      expect((second?.time ?? 0) - (first?.time ?? 0)).toBeGreaterThanOrEqual(one.afterMs ?? 0);
      if (one.words) expect(told(item)).not.toContain(one.words);
    },
  );

  it.each(named(["exhausted"]))("goes on saying so (%s) fails the item after three tries", async (name) => {
    const one = caseOf(name);
    const { item } = await outcome(one);
    expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["failed", 3, false]);
    if (one.words) expect(told(item)).not.toContain(one.words);
  });

  it.each(named(["marked"]))(
    "leaves open whether it made an image (%s) is asked once more, with a mark",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["success", 2, true]);
      expect(batch.actual_cost).toBeGreaterThan(0);
      if (one.words) expect(told(item)).not.toContain(one.words);
    },
  );

  it.each(named(["given up"]))("leaves it open again (%s) is not asked a third time", async (name) => {
    const one = caseOf(name);
    const { item } = await outcome(one);
    expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["failed", 2, true]);
    if (one.words) expect(told(item)).not.toContain(one.words);
  });

  it.each(named(["waits"]))(
    "cannot be used for now (%s) makes the item wait, and nobody asks it again",
    async (name) => {
      const one = caseOf(name);
      const batch = await chain.until(one.batch, ({ waiting }) => waiting !== null && waiting !== undefined);
      expect(batch).toMatchObject({ status: "running", success_count: 0, fail_count: 0 });
      const [item] = await chain.items(one.batch);
      expect(item).toMatchObject({ status: "pending", error: null });
      const answer = await chain.realtime(one.id, [{ text: `${one.name}, now` }]);
      // A model whose only provider is disabled is no longer in the list.
      expect(one.minutes ? [503] : [503, 404]).toContain(answer.status);
      expect(one.fake.requests.filter(({ kind }) => kind === "images")).toHaveLength(1);
      if (one.words) expect(told(item, batch, await answer.text())).not.toContain(one.words);
      const until = batch.waiting?.until ?? null;
      if (one.minutes === undefined) {
        expect(until).toBeNull();
        return;
      }
      const wait = (Number(until) * 1000 - Date.now()) / 60_000;
      expect(wait).toBeGreaterThan(one.minutes[0]);
      expect(wait).toBeLessThan(one.minutes[1]);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(one.minutes[0] * 60);
    },
  );

  it.each(named(["refused"]))("does not listen (%s) costs no item", async (name) => {
    const one = caseOf(name);
    const answer = await chain.realtime(one.id, [{ text: "now" }]);
    expect([502, 503]).toContain(answer.status);
    const batch = await chain.batch(one.batch);
    expect(batch).toMatchObject({ status: "running", success_count: 0, fail_count: 0 });
  });

  it.each(named(["elsewhere"]))("sends its caller elsewhere (%s) gets no image from there", async (name) => {
    const one = caseOf(name);
    const batch = await chain.until(one.batch, ({ waiting }) => waiting !== null && waiting !== undefined);
    expect(batch.waiting?.code).toBe("PROVIDER_MODEL_MISSING");
    expect(one.fake.asked(one.name)).toBe(1);
    const requests = [...cases.values()].flatMap(({ fake }) => fake.requests);
    expect(requests.filter(({ path }) => path.includes("elsewhere"))).toEqual([]);
  });

  it("has made nothing that is not on an item, and the books agree", async () => {
    const ended = named(["final", "retried", "exhausted", "marked", "given up"]);
    for (const name of ended) {
      const one = caseOf(name);
      const { item } = await outcome(one);
      const unseen = (one.fake.bill.get(one.name)?.length ?? 0) - (item.status === "success" ? 1 : 0);
      if (unseen > 0) expect([name, isMarked(item)]).toEqual([name, true]);
    }
    const check = await chain.run(["admin", "check"]);
    expect([check.code, check.stdout]).toEqual([0, expect.stringMatching(/^ok/)]);
  });
});
