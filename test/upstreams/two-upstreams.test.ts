import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import type { Behaviour, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { nativeErrors } from "../support/upstreams/native.ts";
import { openaiErrors } from "../support/upstreams/openai-dialects.ts";
import { startFake } from "./services.ts";

/** How the first of two upstreams behaves, and whether its answers leave open if an image was made. */
const FIRST: Record<string, { behaviour: Behaviour; isOpen: boolean; seconds?: number }> = {
  "is limited": { behaviour: hostile.answers(nativeErrors.limited({ retryDelay: "600s" })), isOpen: false },
  "takes no key": { behaviour: hostile.answers(nativeErrors.invalidKey()), isOpen: false },
  "has no money": { behaviour: hostile.answers(openaiErrors.paymentRequired()), isOpen: false },
  "has no such model": { behaviour: hostile.answers(nativeErrors.noModel("m", "v1beta")), isOpen: false },
  "is overloaded": { behaviour: hostile.answers(nativeErrors.overloaded()), isOpen: false },
  hangs: { behaviour: hostile.hang, isOpen: true, seconds: 3 },
  "hangs after the work": { behaviour: hostile.late(60_000, { made: true }), isOpen: true, seconds: 3 },
  "lies with a page": { behaviour: hostile.html(200), isOpen: true },
  "breaks off": { behaviour: hostile.resetMidway, isOpen: true },
};
const NAMES = Object.keys(FIRST);
const ITEMS = 10;
/** This many failures at once cool an upstream down. */
const CONCURRENCY = 5;

interface Pair {
  first: FakeUpstream;
  second: FakeUpstream;
}

const pairs = new Map<string, Pair>();
const batches = new Map<string, string>();
let chain: Chain;
const idOf = (name: string, use: string) => `${use}-${NAMES.indexOf(name)}`;
const promptsOf = (name: string) => Array.from({ length: ITEMS }, (_, at) => `${name} ${at + 1}`);

function pairOf(name: string, use: string): Pair {
  const pair = pairs.get(idOf(name, use));
  if (!pair) throw new Error(name);
  return pair;
}

beforeAll(async () => {
  const providers = [];
  const models = [];
  for (const name of NAMES) {
    for (const use of ["batch", "now"]) {
      const id = idOf(name, use);
      const first = await startFake("native", { behaviour: FIRST[name]?.behaviour ?? null });
      const second = await startFake("openai");
      pairs.set(id, { first: first.fake, second: second.fake });
      models.push(model(id));
      const times = { timeoutSeconds: FIRST[name]?.seconds ?? 20, concurrency: CONCURRENCY };
      providers.push(
        { name: `${id}-first`, models: { [id]: first.model }, ...times, ...first.entry },
        { name: `${id}-second`, models: { [id]: second.model }, timeoutSeconds: 20, ...second.entry },
      );
    }
  }
  chain = await Chain.startHere({ models, providers });
  for (const name of NAMES) batches.set(name, (await chain.submit(idOf(name, "batch"), promptsOf(name))).id);
});

afterAll(async () => {
  await chain?.close();
  for (const { first, second } of pairs.values()) await Promise.all([first.close(), second.close()]);
});

describe("with two upstreams, of which the first", () => {
  it.each(NAMES)("%s, all items arrive, and none is asked for twice without a mark", async (name) => {
    const { first, second } = pairOf(name, "batch");
    const id = batches.get(name) ?? "";
    const batch = await chain.until(id);
    expect(batch).toMatchObject({ status: "completed", success_count: ITEMS, actual_cost: ITEMS * 0.05 });
    const items = await chain.items(id);
    for (const [at, prompt] of promptsOf(name).entries()) {
      const [before, after] = [first.asked(prompt), second.asked(prompt)];
      expect([prompt, after, items[at]?.provider]).toEqual([prompt, 1, `${idOf(name, "batch")}-second`]);
      const isOpen = FIRST[name]?.isOpen ?? false;
      if (isOpen) expect(before).toBeLessThanOrEqual(1);
      expect([prompt, isMarked(items[at] ?? { error: null })]).toEqual([prompt, isOpen && before > 0]);
    }
    expect(first.requests.length).toBeLessThan(3 * ITEMS);
  });

  it.each(NAMES.filter((name) => !FIRST[name]?.isOpen))(
    "%s, real time gets its image from the other",
    async (name) => {
      const { second } = pairOf(name, "now");
      const answer = await chain.realtime(idOf(name, "now"), [{ text: `${name} now` }]);
      expect([answer.status, second.billed()]).toEqual([200, 1]);
    },
  );

  it.each(NAMES.filter((name) => FIRST[name]?.isOpen))(
    "%s, real time pays for no second image",
    async (name) => {
      const { second } = pairOf(name, "now");
      const answer = await chain.realtime(idOf(name, "now"), [{ text: `${name} now` }]);
      expect(answer.status).toBeGreaterThanOrEqual(500);
      expect(second.requests.filter(({ kind }) => kind === "images")).toEqual([]);
    },
  );
});
