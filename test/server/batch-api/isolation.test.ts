import { describe, expect, it } from "vitest";
import { issueKey } from "../../../src/domain/accounts.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { batchApi } from "../../../src/server/batch-api/batches.ts";
import { OPERATIONS } from "../../../src/server/surfaces.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";

describe("another key", () => {
  it("[AUTH-3] gets the answer that an unknown batch gets, on every path, to the last byte", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(1) }, { "idempotency-key": "k" });
    await service.until(id);
    const { stores } = await openBeside(service.data);
    const accountId = (await stores.read.accounts.byName("default"))?.id ?? "";
    const facts = { name: "other", accountId, group: "default", expiresAtMs: null };
    const other = await stores.write((tx) => issueKey(tx, { clock: systemClock, ids: randomIds }, facts));
    const headers = { authorization: `Bearer ${other.key}`, "x-request-id": "same" };
    const ofOneBatch = OPERATIONS.filter(
      ({ surface, path }) => surface === batchApi && path.includes("{id}"),
    );
    expect(ofOneBatch.length).toBeGreaterThanOrEqual(9);
    for (const { method, path: pattern } of ofOneBatch) {
      const path = pattern.slice(pattern.indexOf("{id}") + 4).replace("{custom_id}", "i1");
      const init = { method: method.toUpperCase(), headers };
      const foreign = await service.ask(`/${id}${path}`, init);
      const unknown = await service.ask(`/imgbatch_${"0".repeat(32)}${path}`, init);
      expect([foreign.status, await foreign.text()]).toEqual([404, await unknown.text()]);
      expect([...foreign.headers.keys()]).toEqual([...unknown.headers.keys()]);
    }
    expect(await (await service.ask("", { headers })).json()).toMatchObject({ data: [] });
    const asParent = { model: MODEL, items: items(1), parent_batch_id: id };
    expect((await service.create(asParent, headers)).status).toBe(404);
    const own = await service.submit(
      { model: MODEL, items: items(1) },
      { ...headers, "idempotency-key": "k" },
    );
    expect(own.id).not.toBe(id);
    await service.until(id);
    expect((await service.batch(id)).status).toBe("completed");
  });
});
