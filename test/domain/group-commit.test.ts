import { expect, it } from "vitest";
import { GroupCommit } from "../../src/domain/batches/finish-item.ts";
import { StorageUnavailable } from "../../src/domain/ports/blob-store.ts";
import { type Gate, gate } from "../support/gate.ts";

/** Work that writes its groups down, waits at a gate each, and returns the entries in capitals. */
function writtenDown() {
  const groups: string[][] = [];
  const gates: Gate<void>[] = [];
  const work = new GroupCommit<string, string>(async (entries) => {
    groups.push([...entries]);
    const ready = gate<void>();
    gates.push(ready);
    await ready.promise;
    return entries.map((entry) => entry.toUpperCase());
  });
  return { work, groups, gates };
}

it("entries that come together, or while their key is at work, are one group; other keys do not wait", async () => {
  const { work, groups, gates } = writtenDown();
  const first = [work.add("k", "a"), work.add("k", "b")];
  await expect.poll(() => groups).toEqual([["a", "b"]]);
  const next = [work.add("k", "c"), work.add("k", "d"), work.add("other", "e")];
  await expect.poll(() => groups).toEqual([["a", "b"], ["e"]]);
  gates[0]?.open();
  expect(await Promise.all(first)).toEqual(["A", "B"]);
  await expect.poll(() => groups.at(2)).toEqual(["c", "d"]);
  for (const each of gates) each.open();
  expect(await Promise.all(next)).toEqual(["C", "D", "E"]);
});

it("an entry that cannot be recorded fails alone, but all wait for a database that cannot be used", async () => {
  const groups: string[] = [];
  const unavailable = new StorageUnavailable("full", "The disk is full.", null);
  const work = new GroupCommit<string, string>(async (entries) => {
    groups.push(entries.join(""));
    if (entries.includes("!")) throw unavailable;
    if (entries.includes("?")) throw new Error("not this one");
    return entries;
  });
  const all = (entries: string) => Promise.allSettled([...entries].map((entry) => work.add("k", entry)));
  const ends = async (entries: string) =>
    (await all(entries)).map((end) => (end.status === "fulfilled" ? end.value : String(end.reason)));
  expect(await ends("a?c")).toEqual(["a", "Error: not this one", "c"]);
  expect(groups.splice(0)).toEqual(["a?c", "a", "?", "c"]);
  expect(await ends("d!")).toEqual([String(unavailable), String(unavailable)]);
  expect(groups).toEqual(["d!"]);
});
