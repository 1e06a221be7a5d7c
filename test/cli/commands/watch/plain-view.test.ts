import { expect, it } from "vitest";
import { createPlainView } from "../../../../src/cli/commands/watch.ts";
import { type Batch, readBatch } from "../../../../src/client/answers.ts";
import { InstantClock } from "../../../support/instant-clock.ts";

function batch(id: string, status: string, success_count: number): Batch {
  const read = readBatch({ id, status, success_count, item_count: 9 });
  if (read === null) throw new Error("this is no batch");
  return read;
}

it("a change is written at most every 10 s, a standstill every 60 s, the end at once and only once", async () => {
  const clock = new InstantClock();
  const said: string[] = [];
  const view = createPlainView((line) => void said.push(line.replace(/ {2,}/g, " ")), clock, {
    progress() {},
    settle() {},
  });
  const show = async (afterMs: number, ...batches: Batch[]) => {
    await clock.sleep(afterMs);
    view.show(batches);
    return said.splice(0).map((line) => line.split(" ").slice(0, 3).join(" "));
  };
  expect(await show(0, batch("a", "running", 1))).toEqual(["a running 1/9"]);
  expect(await show(9_000, batch("a", "running", 2), batch("b", "queued", 0))).toEqual(["b queued 0/9"]);
  expect(await show(1_000, batch("a", "running", 3), batch("b", "running", 1))).toEqual(["a running 3/9"]);
  expect(await show(59_000, batch("a", "running", 3))).toEqual([]);
  expect(await show(1_000, batch("a", "running", 3))).toEqual(["a running 3/9"]);
  expect(await show(1, batch("a", "completed", 9))).toEqual(["a completed 9/9"]);
  expect(await show(90_000, batch("a", "completed", 9))).toEqual([]);
});
