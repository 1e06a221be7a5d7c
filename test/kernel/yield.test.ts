import { expect, it } from "vitest";
import { aside } from "../../src/kernel/pacing.ts";

const turn = () => new Promise((resolve) => setImmediate(resolve));

it("what waits goes on in its order, one piece in each turn of the event loop", async () => {
  const order: string[] = [];
  const waits = ["a", "b", "c"].map((name) => aside().then(() => order.push(name)));
  const seen: string[] = [];
  for (let turns = 0; turns < 3; turns++) {
    expect(order).toHaveLength(turns);
    await turn();
    seen.push(order.join(""));
  }
  await Promise.all(waits);
  expect(seen).toEqual(["a", "ab", "abc"]);
  await aside();
});
