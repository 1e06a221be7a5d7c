import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api/batches.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { startNode } from "../support/processes.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const KILLED_SERVICE = resolve(import.meta.dirname, "../support/killed-service.mjs");
const COUNT = 4;

async function post(url: string, key: string, body: object): Promise<BatchObject | null> {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "idempotency-key": "k",
  };
  const init = { method: "POST", headers, body: JSON.stringify(body) };
  // The service may die before its answer arrives.
  const answer = await fetch(`${url}/v1/images/batches`, init).catch(() => null);
  return answer && ((await answer.json().catch(() => null)) as BatchObject | null);
}

describe("a service that is killed", () => {
  it.each(["queued", "running", "making:2", "item:3", "processing_results", "settling", "completed"])(
    "[LIFE-5] at %s goes on at the next start: all images, none twice, paid once",
    async (moment) => {
      const data = await tempDir();
      const victim = startNode([KILLED_SERVICE, data, moment]);
      const { url, key } = JSON.parse(await victim.line()) as { url: string; key: string };
      const body = { model: MODEL, items: items(COUNT) };
      await post(url, key, body);
      expect((await victim.exited).signal).toBe("SIGKILL");

      const { stores, blobs } = await openBeside(data);
      const [left] = await stores.read.batches.all();
      const done = (await stores.read.items.countByStatus(left?.id ?? "")).success;
      const status = moment.includes(":") ? "running" : moment;
      expect(left?.status).toBe(status);

      const provider = new FakeProvider();
      const service = await startTestService({ data, providers: [provider] });
      const { id } = await service.submit(body, { "idempotency-key": "k" });
      expect(id).toBe(left?.id);
      const ended = await service.until(id);
      expect(ended).toMatchObject({ status: "completed", success_count: COUNT, actual_cost: 0.134 });
      expect(provider.requests).toHaveLength(COUNT - done);
      expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
      const history = (await stores.read.batches.events(id)).map((event) => event.to);
      expect(history).toEqual(["queued", "running", "processing_results", "settling", "completed"]);
    },
  );
});
