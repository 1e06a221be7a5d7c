import { describe, expect, it } from "vitest";
import type { Stores } from "../../src/domain/ports/stores.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import { Admission, BATCHES_IN_HAND } from "../../src/workers/admission.ts";
import { gate } from "../support/gate.ts";

const QUEUE = { provider: "p", apiKeyId: "k" };
const batchOf = (id: string) => ({ ...QUEUE, id }) as BatchRecord;
const idsOf = (batches: readonly BatchRecord[]) => batches.map(({ id }) => id);

/** An admission over a database that holds these batches, and whose answers wait to be let go. */
function slowly(stored: BatchRecord[]) {
  const answer = gate();
  const waiting = async () => {
    const found = stored.slice(0, BATCHES_IN_HAND);
    await answer.promise;
    return found;
  };
  return { answer, admission: new Admission({ read: { batches: { waiting } } } as unknown as Stores) };
}

describe("admission over a slow database", () => {
  it("[WORK-7] a batch that begins to wait while its queue is read is not forgotten", async () => {
    const stored: BatchRecord[] = [];
    const { answer, admission } = slowly(stored);
    admission.expect(QUEUE);
    const looking = admission.refill(QUEUE);
    stored.push(batchOf("late"));
    expect(admission.enter(batchOf("late"))).toBe(false);
    answer.open();
    expect(idsOf(await looking)).toEqual(["late"]);
    expect(idsOf(await admission.refill(QUEUE))).toEqual([]);
    expect(admission.enter(batchOf("next"))).toBe(true);
  });

  it("[WORK-7] a batch is started once, even when its queue is read several times meanwhile", async () => {
    const stored = ["a", "b", "c"].map(batchOf);
    const { answer, admission } = slowly(stored);
    admission.expect(QUEUE);
    const looking = [admission.refill(QUEUE), admission.refill(QUEUE)];
    answer.open();
    expect(idsOf((await Promise.all(looking)).flat())).toEqual(["a", "b", "c"]);
    expect([admission.enter(batchOf("a")), admission.enter(batchOf("a"))]).toEqual([true, true]);
    for (const { id } of stored) admission.leave(id);
    for (let i = 0; i < BATCHES_IN_HAND; i++) expect(admission.enter(batchOf(`next ${i}`))).toBe(true);
    expect(admission.enter(batchOf("too many"))).toBe(false);
  });
});
