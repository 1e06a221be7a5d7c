import { expect, it } from "vitest";
import { itemRepository } from "../../../src/storage/repositories/items.ts";
import { sessionOfPlans } from "../../support/query-plans.ts";

it("the retries of a batch are found without a look at other batches", async () => {
  const { session, plans } = await sessionOfPlans();
  const batch = { id: "b", apiKeyId: "a", parentBatchId: null };
  await itemRepository(session).retriesOf(batch, ["one", "two"]);
  expect(plans).toContainEqual(
    expect.stringMatching(/^SEARCH batches USING INDEX batches_by_parent \(parent_batch_id=\? AND seq>\?\)/),
  );
  expect(plans.filter((step) => step.includes("SCAN") || step.includes("TEMP B-TREE"))).toEqual([]);
});
