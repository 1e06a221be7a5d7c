import { describe, expect, it } from "vitest";
import { FakeProvider } from "../../support/fake-provider.ts";
import { items, MODEL, otherKey, startTestService } from "../../support/service.ts";

describe("the overview of the service", () => {
  it("shows its owner the providers, the problems, the queue, the disk and the requests of all keys but its own", async () => {
    const service = await startTestService();
    const other = await otherKey(service);
    const { id } = await service.submit({ model: MODEL, items: items(2) }, other.headers);
    await expect
      .poll(async () => (await service.ask(`/${id}`, other)).json())
      .toMatchObject({
        status: "completed",
      });
    const authorization = `Bearer ${service.credentials.api_key}`;
    const ask = () => fetch(`${service.url}/v1/console/service`, { headers: { authorization } });
    await ask();
    const answer = await ask();
    const view = await answer.json();
    expect(view).toMatchObject({
      data_directory: service.data,
      queue: { running: 0, waiting: 0, concurrency: 2, paused: false },
      batches: {},
      providers: [{ name: "procedural", type: "procedural", state: "ok", until: null, models: [] }],
    });
    expect(view.disk_free_bytes).toBeGreaterThan(0);
    expect(view.requests[0]).toMatchObject({ method: "GET", status: 200, key: other.key.slice(0, 12) });
    expect(view.requests.filter(({ path }: { path: string }) => path.startsWith("/v1/console"))).toEqual([]);
    expect(view.requests.at(-1)).toMatchObject({ method: "POST", path: "/v1/images/batches" });
    expect(JSON.stringify(view)).not.toContain(other.key);
  });

  it("shows the last warnings and errors of the log", async () => {
    const provider = new FakeProvider();
    provider.answer = () => Promise.reject(new Error("out of paint"));
    const service = await startTestService({ providers: [provider] });
    const headers = { authorization: `Bearer ${service.credentials.api_key}` };
    const view = async () => (await fetch(`${service.url}/v1/console/service`, { headers })).json();
    expect((await view()).problems).toEqual([]);
    await service.submit({ model: MODEL, items: items(1) });
    const problem = { level: "error", text: expect.stringContaining("out of paint") };
    await expect.poll(async () => (await view()).problems[0]).toMatchObject(problem);
  });

  it("is refused to every other key, and to a session of one", async () => {
    const service = await startTestService({ workers: false });
    const other = await otherKey(service);
    const init = { method: "POST", headers: other.headers };
    const { token } = await (await fetch(`${service.url}/v1/console/sessions`, init)).json();
    for (const credential of [other.key, token]) {
      const headers = { authorization: `Bearer ${credential}` };
      const answer = await fetch(`${service.url}/v1/console/service`, { headers });
      expect([answer.status, (await answer.json()).error.code]).toEqual([403, "OWNER_ONLY"]);
    }
  });
});
