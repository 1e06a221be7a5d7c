import { expect, it } from "vitest";
import { realtimeRepositories } from "../../../src/storage/repositories/realtime.ts";
import { sessionOfPlans } from "../../support/query-plans.ts";

it("a kept answer is removed by its key, without a look at the others", async () => {
  const { session, plans } = await sessionOfPlans();
  await realtimeRepositories(session).keyedRequests.remove({ apiKeyId: "a", key: "k", realtimeId: "gen_1" });
  expect(plans).toEqual([
    expect.stringMatching(/^SEARCH keyed_requests USING INDEX .*api_key_id=\? AND key=\?/),
  ]);
});
