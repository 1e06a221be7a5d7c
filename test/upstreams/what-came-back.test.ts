import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Chain, type ChainItem, model } from "../support/upstreams/chain.ts";
import type { Behaviour, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { lookAt, showsPrompt } from "../support/upstreams/images.ts";
import { startFake } from "./services.ts";

interface Expected {
  behaviour: Behaviour;
  type?: string;
  size?: [number, number];
  count?: number;
  hasNote: boolean;
}

/** Good answers that are not the one that was asked for: PNG of 1024x1024. */
const ANSWERS: Record<string, Expected> = {
  "as asked": { behaviour: hostile.answering({}), hasNote: false },
  "a JPEG that is called a PNG": {
    behaviour: hostile.answering({ type: "jpeg", label: "image/png" }),
    type: "jpeg",
    hasNote: true,
  },
  "another size": {
    behaviour: hostile.answering({ size: { width: 1408, height: 768 } }),
    size: [1408, 768],
    hasNote: true,
  },
  "thoughts before it": { behaviour: hostile.answering({ thoughts: 2 }), hasNote: false },
  "two images": { behaviour: hostile.answering({ images: 2 }), count: 2, hasNote: false },
};
const SERVICES = ["native", "openai"] as const;
const cases = SERVICES.flatMap((service) =>
  Object.keys(ANSWERS)
    // Only the native service shows its thoughts.
    .filter((answer) => service === "native" || !answer.startsWith("thoughts"))
    .map((answer): [(typeof SERVICES)[number], string] => [service, answer]),
);

const fakes: FakeUpstream[] = [];
const batches = new Map<string, string>();
let chain: Chain;
const promptOf = (service: string, answer: string) => `${answer} of ${service}`;

beforeAll(async () => {
  const providers: object[] = [];
  for (const [at, [service, answer]] of cases.entries()) {
    const behaviour = ANSWERS[answer]?.behaviour ?? null;
    const { fake, entry, model: upstreamId } = await startFake(service, { behaviour, size: null });
    fakes.push(fake);
    providers.push({ name: `p-${at}`, models: { [`m-${at}`]: upstreamId }, ...entry });
  }
  chain = await Chain.startHere({ models: cases.map((_, at) => model(`m-${at}`)), providers });
  for (const [at, [service, answer]] of cases.entries()) {
    const prompt = promptOf(service, answer);
    batches.set(prompt, (await chain.submit(`m-${at}`, [prompt])).id);
  }
});

afterAll(async () => {
  await chain?.close();
  for (const fake of fakes) await fake.close();
});

describe("an image that comes back", () => {
  it.each(cases)("from %s: %s, is kept as it came, and a difference is noted", async (service, answer) => {
    const { type = "png", size = [1024, 1024], count = 1, hasNote } = ANSWERS[answer] as Expected;
    const prompt = promptOf(service, answer);
    const id = batches.get(prompt) ?? "";
    expect(await chain.until(id)).toMatchObject({ success_count: 1, actual_cost: 0.05 });
    const [item] = (await chain.items(id)) as (ChainItem & { mime_type: string; image_count: number })[];
    expect(item).toMatchObject({ status: "success", mime_type: `image/${type}`, image_count: count });
    expect([item?.notes, (item?.notes?.length ?? 0) > 0]).toEqual([item?.notes, hasNote]);
    const bytes = await chain.image(id, "i1");
    expect(await lookAt(bytes)).toEqual({ type, width: size[0], height: size[1] });
    expect(await showsPrompt(bytes, prompt)).toBe(true);
  });
});
