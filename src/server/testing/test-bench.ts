import type { z } from "zod";
import type { Fault, TestRequest, testSchemas, Vendor } from "../../contract/test-api.ts";

/** The journal keeps at most so many requests, and so many characters of their bodies. */
const MOST_REQUESTS = 1000;
const MOST_CHARS = 32 * 1024 * 1024;

/** The facts of a request that decide whether a fault is for it. */
interface FaultTarget {
  vendor: Vendor;
  /** See `x-imgbatch-test`; null without that header. */
  test: string | null;
  /** The models that the request names. */
  models: readonly string[];
  /** Every text of its body. */
  texts: readonly string[];
  /** Whether it asks for images. */
  asksForImages: boolean;
  /** Whether it asks for anything to be made. No other request is charged. */
  makes: boolean;
}

interface Ordered {
  fault: Fault;
  test: string | null;
  /** How many requests have matched so far. With `share`, not each of them meets the fault. */
  matched: number;
  met: number;
}

interface Noted {
  request: TestRequest;
  test: string | null;
  chars: number;
}

/**
 * What the tests of a service have ordered, and what it was asked. In memory alone, and of this process: a service for tests
 * has one.
 */
export class TestBench {
  #faults: Ordered[] = [];
  #noted: Noted[] = [];
  #chars = 0;
  readonly #forgotten = new Map<string | null, number>();

  /** Adds a fault for requests of this test. */
  order(fault: Fault, test: string | null): void {
    this.#faults.push({ fault, test, matched: 0, met: 0 });
  }

  /** The faults that can still meet a request of this test, in their order. */
  faults(test: string | null): z.infer<(typeof testSchemas)["FaultList"]>["faults"] {
    return this.#faults.filter((each) => each.test === test).map(({ fault, met }) => ({ ...fault, met }));
  }

  clearFaults(test: string | null): void {
    this.#faults = this.#faults.filter((each) => each.test !== test);
  }

  /** Returns the fault that a request meets, the first that matches, and counts it; null when there is none. */
  meet(target: FaultTarget): Fault | null {
    for (const ordered of this.#faults) {
      const { fault } = ordered;
      if (ordered.test !== target.test || !isFor(fault, target)) continue;
      ordered.matched++;
      const { times = 1, share = 1 } = fault;
      // The faults are spread evenly, so that each run of a test sees the same: one is met whenever the sum of shares reaches a whole number.
      if (Math.floor(ordered.matched * share) === Math.floor((ordered.matched - 1) * share)) continue;
      ordered.met++;
      if (fault.share === undefined && ordered.met >= times)
        this.#faults = this.#faults.filter((each) => each !== ordered);
      return fault;
    }
    return null;
  }

  /** Adds a request to the journal. Its answer is set in the entry later. */
  note(request: TestRequest, test: string | null): void {
    const chars = JSON.stringify(request.body)?.length ?? 0;
    this.#noted.push({ request, test, chars });
    this.#chars += chars;
    while (this.#noted.length > MOST_REQUESTS || (this.#chars > MOST_CHARS && this.#noted.length > 1)) {
      const oldest = this.#noted.shift();
      this.#chars -= oldest?.chars ?? 0;
      const of = oldest?.test ?? null;
      this.#forgotten.set(of, (this.#forgotten.get(of) ?? 0) + 1);
    }
  }

  /** The requests of this test, the oldest first. */
  requests(test: string | null): z.infer<(typeof testSchemas)["TestRequestList"]> {
    const requests = this.#noted.filter((each) => each.test === test).map(({ request }) => request);
    return { requests, forgotten: this.#forgotten.get(test) ?? 0 };
  }

  clearRequests(test: string | null): void {
    this.#noted = this.#noted.filter((each) => each.test !== test);
    this.#chars = this.#noted.reduce((sum, { chars }) => sum + chars, 0);
    this.#forgotten.delete(test);
  }
}

function isFor(fault: Fault, target: FaultTarget): boolean {
  const { surface, model, text } = fault;
  if (surface !== undefined && surface !== target.vendor) return false;
  if (model !== undefined && !target.models.includes(model)) return false;
  if (text !== undefined && !target.texts.some((each) => each.includes(text))) return false;
  if ((fault.empty || fault.refuse !== undefined) && !target.asksForImages) return false;
  return !fault.lost || target.makes;
}
