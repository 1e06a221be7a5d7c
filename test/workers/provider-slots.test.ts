import { expect, it } from "vitest";
import type { ImageRequest, ItemProvider } from "../../src/domain/ports/image-provider.ts";
import { shareProviders, slotsOf } from "../../src/workers/provider-slots.ts";
import { FakeProvider, made } from "../support/fake-provider.ts";
import { type Gate, gate } from "../support/gate.ts";

function twoSides(concurrency: number) {
  const provider = new FakeProvider({ concurrency });
  const gates = new Map<string, Gate<void>>();
  provider.answer = async ({ prompt }) => {
    const open = gate();
    gates.set(prompt, open);
    await open.promise;
    return made();
  };
  const { forBatches, forRealtime } = shareProviders([provider]);
  const [shared] = forBatches as [ItemProvider];
  const never = new AbortController().signal;
  const ask = async (side: "forBatches" | "forRealtime", prompt: string, signal = never) => {
    const request = { prompt } as ImageRequest;
    if (side === "forRealtime") return forRealtime[0]?.generate(request, signal);
    return slotsOf(shared).run(false, signal, () => shared.generate(request, signal));
  };
  const started = () => provider.requests.map(({ prompt }) => prompt);
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const end = async (prompt: string) => {
    await turn();
    gates.get(prompt)?.open();
    await turn();
  };
  return { provider, ask, started, end, turn };
}

it("batches and real time together never use more slots than the provider has", async () => {
  const { provider, ask, started, end, turn } = twoSides(2);
  const all = [
    ask("forBatches", "b1"),
    ask("forRealtime", "r1"),
    ask("forBatches", "b2"),
    ask("forRealtime", "r2"),
  ];
  await turn();
  expect(started()).toEqual(["b1", "r1"]);
  for (const prompt of ["b1", "r1", "r2", "b2"]) await end(prompt);
  await Promise.all(all);
  expect(provider.maxRunning).toBe(2);
});

it("real-time requests go first, but after three in a row a waiting item comes", async () => {
  const { ask, started, end } = twoSides(1);
  const all = [ask("forBatches", "b0"), ask("forBatches", "b1"), ask("forBatches", "b2")];
  for (let i = 1; i <= 5; i++) all.push(ask("forRealtime", `r${i}`));
  const order = ["b0", "r1", "r2", "r3", "b1", "r4", "r5", "b2"];
  for (const prompt of order) await end(prompt);
  await Promise.all(all);
  expect(started()).toEqual(order);
});
