import { describe, expect, it } from "vitest";
import { ProviderHealth } from "../../../src/domain/health/provider-health.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, troubled } from "../../support/fake-provider.ts";
import { openStores } from "../../support/stores.ts";

const limited = (retryAfterMs: number) => troubled("limited", { retryAfterMs });

describe("the health of a provider in two processes", () => {
  it("one process takes over that the other has forgiven a trouble, and says so once", async () => {
    const { service, other, provider } = await twoProcesses(await openStores());
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    const changes: string[] = [];
    service.onChange(() => changes.push("change"));
    await service.refresh();
    expect(service.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
    await (await other()).forgive(provider.name);
    expect(changes).toEqual([]);
    await service.refresh();
    await service.refresh();
    expect(service.blockOf(provider, "m")).toBeNull();
    expect(changes).toEqual(["change"]);
  });

  it("a result that is being stored counts more than the other process's forgiveness", async () => {
    const { service, other, provider } = await twoProcesses(await openStores());
    const early = service.begin(provider, "m");
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    await (await other()).forgive(provider.name);
    const storing = early?.failed(limited(600_000), "2");
    await Promise.all([service.refresh(), storing]);
    await service.refresh();
    expect(service.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
    expect((await other()).blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
  });

  it("[HEALTH-1] a pause that could not be stored counts all the same, and is stored later", async () => {
    const stores = await openStores();
    let isFull = false;
    const write: Stores["write"] = (work) =>
      isFull ? Promise.reject(new StorageUnavailable("full", "full", null)) : stores.write(work);
    const { service, other, provider } = await twoProcesses({ ...stores, write });
    await service.begin(provider, "m")?.failed(troubled("failing"), "1");
    await service.begin(provider, "m")?.succeeded();
    isFull = true;
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    await service.refresh();
    expect(service.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
    isFull = false;
    await service.refresh();
    await service.refresh();
    for (const each of [service, await other()])
      expect(each.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
    await (await other()).forgive(provider.name);
    await service.refresh();
    expect(service.blockOf(provider, "m")).toBeNull();
  });

  it("[HEALTH-1] a fault while a result is noted is not the fault of its item: nothing rejects", async () => {
    const { service, provider } = await twoProcesses(await openStores());
    service.onChange(() => {
      throw new Error("a listener has failed");
    });
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    expect(service.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
  });
});

describe("the health of a provider in processes that both ask it", () => {
  it("a trouble that one has met is known to the other, for a model that it has never asked, too", async () => {
    const stores = await openStores();
    const { service, other, provider } = await twoProcesses(stores);
    const second = await other();
    const changes: string[] = [];
    second.onChange(() => changes.push("change"));
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    await second.refresh();
    await second.refresh();
    expect(second.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
    expect(changes).toEqual(["change"]);
    const stranger = new FakeUpstream("own", { fingerprint: "another key" });
    const deps = { stores, clock: new FakeClock(), log: silentLog };
    const third = await ProviderHealth.load(deps, [stranger]);
    await third.refresh();
    expect(third.blockOf(stranger, "m")).toBeNull();
  });

  it("a trouble is known to one that has asked with success before", async () => {
    const { service, other, provider } = await twoProcesses(await openStores());
    const second = await other();
    await second.begin(provider, "m")?.succeeded();
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    await second.refresh();
    expect(second.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
  });

  it("a longer pause is not forgotten for a result of one that did not know it yet", async () => {
    const { service, other, provider } = await twoProcesses(await openStores());
    const second = await other();
    await service.begin(provider, "m")?.failed(limited(60_000), "1");
    await second.begin(provider, "m")?.failed(troubled("failing"), "2");
    await second.refresh();
    await service.refresh();
    for (const each of [service, second, await other()])
      expect(each.blockOf(provider, "m")).toMatchObject({ trouble: "limited" });
  });

  it("one that cannot reach the upstream is told of, and keeps no other from asking", async () => {
    const { service, other, provider } = await twoProcesses(await openStores());
    const second = await other();
    for (const item of ["1", "2", "3", "4", "5"])
      await service.begin(provider, "m")?.failed(troubled("unreachable"), item);
    await second.refresh();
    expect(second.blockOf(provider, "m")).toBeNull();
    expect(second.knownBlockOf(provider, "m")).toMatchObject({ trouble: "unreachable" });
    expect(second.blocksOf(provider)).toMatchObject([{ trouble: "unreachable", model: "m" }]);
    await second.begin(provider, "m")?.succeeded();
    await service.refresh();
    expect(service.blockOf(provider, "m")).toMatchObject({ trouble: "unreachable" });
    await (await other()).forgive(provider.name);
    for (const each of [service, second]) {
      await each.refresh();
      expect(each.knownBlockOf(provider, "m")).toBeNull();
    }
  });
});

async function twoProcesses(stores: Stores) {
  const provider = new FakeUpstream("own");
  const deps = { stores, clock: new FakeClock(), log: silentLog };
  const other = () => ProviderHealth.load(deps, [provider]);
  return { provider, service: await other(), other };
}
