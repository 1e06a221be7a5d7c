import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../../src/contract/batch-api.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { items, MODEL, startTestService, type TestService } from "../../support/service.ts";

interface Page {
  data: BatchObject[];
  has_more: boolean;
  next_cursor: string | null;
}

const START = Date.UTC(2030, 0, 31, 23, 59, 58, 500);

/** Five finished batches `b1` to `b5`, a second apart; the last two in the same moment. */
async function fiveBatches(): Promise<{ service: TestService; page: (query: string) => Promise<Page> }> {
  const clock = new FakeClock(START);
  const service = await startTestService({ clock });
  for (const name of ["b1", "B2 50%_off", "b3 Ä", "b4", "b5"]) {
    const { id } = await service.submit({ model: MODEL, task_name: name, items: items(1) });
    await service.until(id);
    if (name !== "b4") clock.advance(1000);
  }
  const page = async (query: string) => (await (await service.ask(`?${query}`)).json()) as Page;
  return { service, page };
}

const names = (page: Page) => page.data.map((batch) => batch.task_name.slice(0, 2));

describe("the list of batches", () => {
  it("[LIST-1] is newest first, by page, with a cursor or an offset", async () => {
    const { page } = await fiveBatches();
    const all = await page("");
    expect(all).toMatchObject({ object: "list", has_more: false, next_cursor: null });
    expect(names(all)).toEqual(["b5", "b4", "b3", "B2", "b1"]);
    const first = await page("limit=2");
    expect([names(first), first.has_more]).toEqual([["b5", "b4"], true]);
    const second = await page(`limit=2&cursor=${first.next_cursor}`);
    expect(names(second)).toEqual(["b3", "B2"]);
    expect(names(await page(`limit=2&cursor=${second.next_cursor}`))).toEqual(["b1"]);
    expect(names(await page("limit=2&cursor=3"))).toEqual(["B2", "b1"]);
    expect(await page("cursor=99")).toMatchObject({ data: [], has_more: false, next_cursor: null });
    expect(await page("cursor=10000")).toMatchObject({ data: [], has_more: false, next_cursor: null });
    const advice = "must be an offset of at most 10000; further on, send `next_cursor` of the page before";
    expect(await page("cursor=99999999999")).toMatchObject({
      error: { message: expect.stringContaining(advice) },
    });
  });

  it("can be narrowed by status, name, download and time", async () => {
    const { service, page } = await fiveBatches();
    expect(names(await page("status=completed&limit=1"))).toEqual(["b5"]);
    expect(names(await page("status=running"))).toEqual([]);
    expect((await page("status=all")).data).toHaveLength(5);
    expect(names(await page("task_name=b2"))).toEqual(["B2"]);
    expect(names(await page(`task_name=${encodeURIComponent("%_")}`))).toEqual(["B2"]);
    expect(names(await page(`task_name=${encodeURIComponent("ä")}`))).toEqual(["b3"]);
    const { data } = await page("task_name=b4");
    await (await service.ask(`/${data[0]?.id}/download`)).arrayBuffer();
    await expect.poll(async () => names(await page("downloaded=true"))).toEqual(["b4"]);
    expect((await page("downloaded=false")).data).toHaveLength(4);
    expect((await page("downloaded=&status=")).data).toHaveLength(5);
  });

  it("takes times as RFC 3339, as a day of UTC and as seconds, both ends included", async () => {
    const { page } = await fiveBatches();
    expect(names(await page("to=2030-01-31"))).toEqual(["B2", "b1"]);
    expect(names(await page("from=2030-02-01"))).toEqual(["b5", "b4", "b3"]);
    expect(names(await page("from=2030-01-31T23:59:59Z&to=2030-02-01T01:00:00%2B01:00"))).toEqual([
      "b3",
      "B2",
    ]);
    const second = Math.floor(START / 1000);
    expect(names(await page(`from=${second}&to=${second}`))).toEqual(["b1"]);
  });

  it.each([
    "status=done",
    "downloaded=yes",
    "limit=0",
    "limit=101",
    "limit=2.5",
    "cursor=abc",
    "cursor=YjU",
    "cursor=10001",
    "from=yesterday",
    "from=2030-02-30",
    "from=2030-02-02&to=2030-02-01",
    "task_name=a&task_name=b",
  ])("the query %s is refused", async (query) => {
    const service = await startTestService({ workers: false });
    const answer = await service.ask(`?${query}`);
    expect(answer.status).toBe(400);
    const param = query.split("=")[0];
    expect(await answer.json()).toMatchObject({ error: { code: "BATCH_IMAGE_INVALID_QUERY", param } });
  });
});
