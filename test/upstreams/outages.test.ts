import { describe, expect, it, onTestFinished } from "vitest";
import { Chain, type ChainBatch, isMarked, model } from "../support/upstreams/chain.ts";
import type { Behaviour } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { nativeErrors } from "../support/upstreams/native.ts";
import { startFake } from "./services.ts";

/** The outages of a minute take minutes: they run when this variable is set. */
const isSoak = Boolean(process.env.IMGBATCH_SOAK);

/** A batch with an upstream that behaves in this way from the start. */
async function submitted(count: number, behaviour: Behaviour | null) {
  const { fake, entry, model: upstreamId } = await startFake("native", { behaviour });
  onTestFinished(() => fake.close());
  const provider = { name: "paid", timeoutSeconds: 20, models: { mine: upstreamId }, ...entry };
  const chain = await Chain.startHere({ models: [model("mine")], providers: [provider] });
  onTestFinished(() => chain.close());
  const prompts = Array.from({ length: count }, (_, at) => `picture ${at + 1}`);
  const { id } = await chain.submit("mine", prompts);
  return { fake, chain, id, prompts };
}

const hasEnded = ({ status }: ChainBatch) => status === "completed";

describe("an outage in a batch", () => {
  it("of a second, in which the upstream has too much to do, costs no item", async () => {
    const limited = hostile.answers(nativeErrors.limited({ retryDelay: "0.9s" }));
    const { fake, chain, id, prompts } = await submitted(40, hostile.outage(1200, limited));
    expect(await chain.until(id)).toMatchObject({ status: "completed", success_count: 40 });
    expect(prompts.filter((prompt) => fake.bill.get(prompt)?.length !== 1)).toEqual([]);
    expect((await chain.items(id)).filter(isMarked)).toEqual([]);
    // It waits as it was told: each outage of a second is met by few requests.
    expect(fake.requests.length).toBeLessThan(40 + 4 * 4);
  });

  it.runIf(isSoak)(
    "of a minute, in which nobody listens, costs no item",
    async () => {
      const { fake, chain, id } = await submitted(200, hostile.late(200));
      await chain.until(id, ({ success_count }) => success_count > 20);
      const made = fake.billed();
      await fake.refuse();
      await new Promise((resolve) => setTimeout(resolve, 60_000));
      expect(await chain.batch(id)).toMatchObject({ status: "running", fail_count: 0, waiting: {} });
      await fake.listenAgain();
      expect(await chain.until(id, hasEnded, 300_000)).toMatchObject({ success_count: 200, fail_count: 0 });
      // Requests that were under way when the connections broke may have been made, and are marked.
      const marked = (await chain.items(id)).filter(isMarked).length;
      expect([made <= fake.billed(), marked <= 4]).toEqual([true, true]);
    },
    400_000,
  );
});
