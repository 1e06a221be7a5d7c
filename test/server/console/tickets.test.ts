import { describe, expect, it } from "vitest";
import { FakeClock } from "../../support/fake-clock.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";
import { readZip } from "../../support/zip.ts";

async function finished() {
  const clock = new FakeClock();
  const logLines: string[] = [];
  const service = await startTestService({ clock, logLines });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await service.until(id);
  const ticket = async (): Promise<string> => {
    const answer = await service.ask(`/${id}/ticket`, { method: "POST" });
    const { object, url, expires_at } = await answer.json();
    expect([object, expires_at]).toEqual(["download.ticket", Math.floor(clock.nowMs() / 1000) + 60]);
    return url;
  };
  return { service, clock, id, ticket, logLines };
}

async function codeOf(url: string) {
  const answer = await fetch(url);
  return [answer.status, (await answer.json()).error.code];
}

const USED = [401, "INVALID_API_KEY"];

describe("a ticket", () => {
  it("downloads the ZIP of its batch without a key, once, and counts as a download", async () => {
    const { service, id, ticket, logLines } = await finished();
    const url = await ticket();
    expect((await fetch(url, { method: "HEAD" })).status).toBe(200);
    const zip = await fetch(`${url}&status=all`);
    expect([...(await readZip(Buffer.from(await zip.arrayBuffer()))).keys()]).toContain("images/i1.png");
    expect(await codeOf(url)).toEqual(USED);
    await expect.poll(async () => (await service.batch(id)).downloaded_at).not.toBeNull();
    expect(logLines.join("")).not.toContain(new URL(url).searchParams.get("ticket"));
  });

  it("is good for a minute, for its batch, and for an active key alone", async () => {
    const { service, clock, id, ticket } = await finished();
    const late = await ticket();
    clock.advance(60_000);
    expect(await codeOf(late)).toEqual(USED);
    const { id: second } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(second);
    expect(await codeOf((await ticket()).replace(id, second))).toEqual(USED);
    expect(await codeOf(`${service.url}/v1/downloads/${id}`)).toEqual([401, "API_KEY_REQUIRED"]);
    const url = await ticket();
    const { stores } = await openBeside(service.data);
    const [key] = await stores.read.keys.list();
    await stores.write((tx) => tx.keys.setDisabled(key?.id ?? "", 1));
    expect(await codeOf(url)).toEqual([401, "API_KEY_DISABLED"]);
  });
});
