import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { expect, it } from "vitest";
import { Spending } from "../../../src/cli/mcp/spending.ts";
import type { ImgbatchError } from "../../../src/contract/errors.ts";
import type { Http } from "../../../src/http/http.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { newBatch, newRunState, writeRunState } from "../../../src/runs/directory/run-state.ts";
import type { RunState } from "../../../src/runs/directory/run-state-schema.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MAX = 10;
const clock = systemClock;
const RUNS = 2;

/** A call of an agent, as far as it has come. */
interface Call {
  run: number;
  wanted: number;
  purse: ReturnType<Spending["purseFor"]>;
  at: "begun" | "refused" | "reserved" | "ended";
}

const idOf = (run: number, index: number) => `batch-${run}-${index}`;

/** A service, the runs on disk, and the calls of one server at a time, which any step may kill. */
async function world() {
  const data = await tempDir();
  const held = new Map<string, number>();
  /** What each batch costs that was planned. */
  const prices = new Map<string, number>();
  const http = {
    json: async ({ path }: { path: string }) => {
      const id = path.split("/").at(-1) ?? "";
      const json = { id, status: "running", hold_amount: (held.get(id) ?? 0) / 1e6 };
      return { json, requestId: null, headers: new Headers() };
    },
  } as unknown as Http;
  const service = { identity: "http://here", keyFingerprint: "f" } as Parameters<typeof newRunState>[0];
  const runs: { dir: string; state: RunState | null; locked: Call | null }[] = [];
  for (let i = 0; i < RUNS; i++) {
    const dir = join(data, `run${i}`);
    await mkdir(dir);
    runs.push({ dir, state: null, locked: null });
  }
  const start = () =>
    new Spending({ dataDirectory: data, maxMicroUsd: MAX, startWith: () => "start", clock });
  let spending = start();
  let calls: Call[] = [];
  const paid = () => [...held.values()].reduce((sum, micros) => sum + micros, 0);
  const runOf = (call: Call) => {
    const run = runs[call.run];
    if (run === undefined) throw new Error("no such run");
    return run;
  };
  /** Writes the entry of the batch, as a command does before the request leaves. */
  const plan = async (call: Call) => {
    const run = runOf(call);
    const { state, dir } = run;
    const entry = newBatch(state?.batches.length ?? 0, service, {
      idempotency_key: `key-${held.size}`,
      prompts: [0, 1],
    });
    const facts = { input_sha256: "a", is_fresh: false, request: null, batches: [] };
    run.state = state ?? newRunState(service, clock, facts);
    if (!run.state.batches.some(({ id }) => id === null)) {
      run.state.batches.push(entry);
      prices.set(idOf(call.run, entry.index), call.wanted);
    }
    await writeRunState(dir, structuredClone(run.state));
  };
  /** The service makes the batch. `isKnown`: its answer arrives. */
  const make = async (call: Call, isKnown: boolean) => {
    const run = runOf(call);
    const entry = run.state?.batches.find(({ id }) => id === null);
    if (run.state === null || entry === undefined) return;
    const id = idOf(call.run, entry.index);
    held.set(id, prices.get(id) ?? 0);
    if (!isKnown) return;
    Object.assign(entry, { id, state: "created" });
    await writeRunState(run.dir, structuredClone(run.state));
  };
  return {
    paid,
    spent: async () => Math.round((await spending.budget(http)).spent * 1e6),
    /** A new call. */
    begin(run: number, wanted: number) {
      const purse = spending.purseFor(runs[run]?.dir ?? "", () => http);
      calls.push({ run, wanted, purse, at: "begun" });
    },
    /** One call goes one step further. */
    async step(which: number) {
      const call = calls[which % Math.max(1, calls.length)];
      if (call === undefined) return;
      const run = runOf(call);
      if (call.at === "begun") {
        if (run.locked !== null) call.at = "refused";
        else {
          run.locked = call;
          const open = run.state?.batches.find(({ id }) => id === null);
          // The batch that a killed call has planned is asked for first, by its key.
          if (open !== undefined) call.wanted = prices.get(idOf(call.run, open.index)) ?? 0;
          call.at = "reserved";
          await call.purse.reserve({ micros: call.wanted, images: 1 }).catch((error: unknown) => {
            expect((error as ImgbatchError).code).toBe("COST_LIMIT");
            call.at = "refused";
          });
          if (call.at === "reserved" && call.wanted > 0) await plan(call);
        }
      } else if (call.at === "reserved") {
        await make(call, true);
        call.at = "ended";
      } else {
        if (run.locked === call) run.locked = null;
        await call.purse.settle(null);
        calls = calls.filter((each) => each !== call);
      }
    },
    /** The process is killed, some of its requests are on their way; the next one starts. */
    async kill(sends: boolean) {
      for (const call of calls) if (sends && call.at === "reserved") await make(call, false);
      for (const run of runs) run.locked = null;
      calls = [];
      spending = start();
    },
    isBusy: () => calls.length > 0,
  };
}

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("begin" as const),
      run: fc.nat(RUNS - 1),
      wanted: fc.integer({ min: 0, max: 6 }),
    }),
  },
  { weight: 9, arbitrary: fc.record({ do: fc.constant("step" as const), which: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("kill" as const), sends: fc.boolean() }) },
);

it("[MCP-3] agents never spend more than the total, however their calls interleave, fail and die", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const { begin, step: go, kill, paid, spent, isBusy } = await world();
      for (const now of steps) {
        if (now.do === "begin") begin(now.run, now.wanted);
        else if (now.do === "step") await go(now.which);
        else await kill(now.sends);
        expect(paid()).toBeLessThanOrEqual(MAX);
      }
      while (isBusy()) await go(0);
      expect(await spent()).toBeGreaterThanOrEqual(paid());
      // Once each run was called again, what is counted is what was paid.
      for (let run = 0; run < RUNS; run++) {
        begin(run, 0);
        while (isBusy()) await go(0);
      }
      expect(await spent()).toBe(paid());
    }),
    { numRuns: fuzzRuns(300) },
  );
}, 60_000);
