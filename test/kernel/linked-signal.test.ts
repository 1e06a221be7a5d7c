import { getEventListeners } from "node:events";
import { expect, it } from "vitest";
import { linkSignals } from "../../src/kernel/signals.ts";

it("a linked signal ends with its first source, for its reason, and leaves nothing with one that lives on", () => {
  const [long, short] = [new AbortController(), new AbortController()];
  const links = Array.from({ length: 100 }, () => linkSignals(long.signal, short.signal));
  short.abort("short");
  long.abort("long");
  expect(new Set(links.map(({ signal }) => signal.reason))).toEqual(new Set(["short"]));
  const other = new AbortController();
  const [kept, gone] = [linkSignals(other.signal), linkSignals(other.signal)];
  gone.unlink();
  expect(getEventListeners(other.signal, "abort")).toHaveLength(1);
  kept.unlink();
  expect(getEventListeners(other.signal, "abort")).toEqual([]);
  other.abort();
  expect([kept.signal.aborted, linkSignals(other.signal).signal.aborted]).toEqual([false, true]);
});
