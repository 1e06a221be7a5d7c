import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { BatchStatus } from "../../../src/contract/statuses.ts";
import { isAtWork, markStops, mayBeBilled, newJob } from "../../../src/domain/jobs/job-rules.ts";
import { ProviderError, type UpstreamJob } from "../../../src/domain/ports/image-provider.ts";
import type { Transaction, UpstreamJobRecord } from "../../../src/domain/ports/stores.ts";
import type { MaybePaid } from "../../../src/domain/records.ts";
import { type JobAction, type JobEvent, type JobFacts, next } from "../../../src/workers/jobs/next.ts";
import { troubled } from "../../support/fake-provider.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const START_MS = 1_700_000_000_000;
const OUTAGE_MS = 24 * HOUR_MS;
const TIMES = { pollMs: 30_000, jobMs: 24 * HOUR_MS, lostMs: 10 * MINUTE_MS };
/** An upstream keeps jobs and files for so long. */
const KEPT_MS = 48 * HOUR_MS;
/** No walk needs more steps once everything goes well. */
const MOST_STEPS = 5000;

/** Decisions of a walk, in their order. Behind the last one everything goes well. */
class Tape {
  readonly #choices: readonly number[];
  #at = 0;

  constructor(choices: readonly number[]) {
    this.#choices = choices;
  }

  get isOver(): boolean {
    return this.#at >= this.#choices.length;
  }

  /** Picks one of the ways. The first is the one that goes well, and as frequent as all others together. */
  pick<Way>(well: Way, ...others: readonly Way[]): Way {
    const choice = this.isOver ? 0 : (this.#choices[this.#at++] ?? 0);
    return choice % 2 === 0 ? well : (others[(choice >> 1) % others.length] ?? well);
  }

  chance(oneIn: number): boolean {
    return this.pick(...([false, ...Array(oneIn - 2).fill(false), true] as [boolean, ...boolean[]]));
  }
}

/** A job as the upstream has it. */
interface Real {
  name: string;
  input: string;
  createdMs: number;
  listedMs: number;
  endsMs: number;
  state: "running" | "succeeded" | "failed" | "cancelled" | "refused";
  end: "succeeded" | "failed" | "refused";
  /** Where it ignores each request to stop it. */
  isDeaf: boolean;
  /** The items of which it bills an image. */
  made: Set<number>;
}

interface Item {
  status: "pending" | "success" | "failed";
  maybePaid: MaybePaid;
  isCancelled: boolean;
}

/** A batch with one job, and an upstream that counts and bills. */
class World {
  readonly tape: Tape;
  readonly rule: JobFacts["unknownOutcome"];
  nowMs = START_MS;
  row: UpstreamJobRecord = newJob("job", { id: "batch" }, START_MS);
  readonly items: Item[] = [0, 1].map(() => ({ status: "pending", maybePaid: "no", isCancelled: false }));
  status: BatchStatus = "running";
  isCancelled = false;
  /** Whether another upstream is to make the images: then each that this one may have made counts. */
  isEndedByPerson = false;
  waitingSinceMs: number | null = null;
  readonly real: Real[] = [];
  inputs = 0;
  /** Whether something was lost, or a process was killed. */
  isTroubled = false;
  /** The jobs whose results were read to the end. */
  readonly read = new Set<string>();
  /** Names of the steps, for a report. */
  readonly log: string[] = [];

  constructor(choices: readonly number[], rule: JobFacts["unknownOutcome"]) {
    this.tape = new Tape(choices);
    this.rule = rule;
  }

  /** As the workers apply an event: in one transaction. */
  apply(event: JobEvent, closes: boolean): JobAction {
    const facts: JobFacts = {
      nowMs: this.nowMs,
      status: this.status,
      isCancelled: this.isCancelled,
      goesOn: true,
      hasPending: this.items.some(({ status }) => status === "pending"),
      closes,
      provider: "upstream",
      times: TIMES,
      isPaid: true,
      unknownOutcome: this.rule,
      outageMs: OUTAGE_MS,
      random: () => 0.5,
    };
    const before = this.row.step;
    const { change, marks, failure, action } = next(this.row, event, facts);
    this.row = { ...this.row, ...change };
    this.log.push(`${before} + ${event.type} -> ${this.row.step}, ${action.do}`);
    for (const { to, from } of marks)
      for (const item of this.#pending())
        if (from === undefined || item.maybePaid === from) item.maybePaid = to;
    if (failure && !this.isCancelled) {
      for (const item of this.#pending()) {
        item.status = "failed";
        if (failure.code === "OUTCOME_UNKNOWN" && item.maybePaid === "no") item.maybePaid = "once";
      }
    }
    if (change.step === "running") this.waitingSinceMs = null;
    if (action.do !== "wait" || action.block === null) return action;
    this.waitingSinceMs ??= this.nowMs;
    const isOver = this.nowMs - this.waitingSinceMs >= OUTAGE_MS;
    if (action.mayGiveUp && isOver) return this.apply({ type: "outageOver", block: action.block }, closes);
    return action;
  }

  #pending(): Item[] {
    return this.items.filter(({ status }) => status === "pending");
  }

  /** The person has the job stopped, or cancels the batch. */
  async askToStop(isCancelled: boolean): Promise<void> {
    this.isCancelled ||= isCancelled;
    this.isEndedByPerson ||= !isCancelled;
    this.log.push(isCancelled ? "the batch is cancelled" : "the job is ended by a person");
    const upstreamJobs = {
      ofBatch: async () => [this.row],
      update: async (_: string, change: Partial<UpstreamJobRecord>) => {
        this.row = { ...this.row, ...change };
      },
    };
    const unsent = await markStops({ upstreamJobs } as unknown as Transaction, "batch", this.nowMs);
    if (isCancelled || unsent.length === 0) return;
    this.row = { ...this.row, step: "done" };
    for (const item of this.#pending()) item.status = "failed";
  }

  /** The batch ends. The marks are those of a batch that ends while a job may be at work. */
  endBatch(): void {
    this.log.push("the batch ends");
    for (const item of this.#pending()) {
      if (mayBeBilled(this.row) && item.maybePaid === "no") item.maybePaid = "once";
      item.status = "failed";
    }
    this.status = this.isCancelled ? "cancelled" : "completed";
  }

  get isUnwanted(): boolean {
    return this.isCancelled || this.row.stopAskedAtMs !== null || this.status !== "running";
  }

  /** Time has passed: jobs end. */
  advance(ms: number): void {
    this.nowMs += ms;
    for (const job of this.real) {
      if (job.state !== "running" || job.endsMs > this.nowMs) continue;
      job.state = job.end;
      if (job.end === "succeeded") job.made = new Set(this.items.keys());
      if (job.end === "failed" && this.tape.chance(2)) job.made.add(0);
    }
  }

  create(input: string): Real {
    expect(this.isUnwanted, "it is sent although nobody wants it").toBe(false);
    expect(this.row.step, "the row does not say that it is sent").toBe("sent");
    const end = this.tape.pick("succeeded", "failed", "refused", "succeeded");
    const job: Real = {
      name: `upstream/${this.real.length + 1}`,
      input,
      createdMs: this.nowMs,
      listedMs: this.nowMs + this.tape.pick(0, 0, 3 * MINUTE_MS, 15 * MINUTE_MS),
      endsMs:
        end === "refused"
          ? this.nowMs
          : this.nowMs + this.tape.pick(MINUTE_MS, 0, 5 * HOUR_MS, Number.POSITIVE_INFINITY),
      state: "running",
      end,
      isDeaf: this.tape.chance(4),
      made: new Set(),
    };
    this.real.push(job);
    this.advance(0);
    return job;
  }

  find(name: string | null): Real | null {
    const job = this.real.find((each) => each.name === name);
    return job && this.nowMs - job.createdMs < KEPT_MS ? job : null;
  }

  /** Stops a job. It may have made something by then. */
  stop(name: string): void {
    const job = this.find(name);
    if (job === null) throw missing();
    if (job.state !== "running" || job.isDeaf) return;
    job.state = "cancelled";
    if (this.tape.chance(2)) job.made.add(0);
  }

  list(row: UpstreamJobRecord): JobEvent {
    const known = [row.upstreamName, ...row.endedNames];
    const listed = this.real.filter(
      ({ name, listedMs }) => listedMs <= this.nowMs && this.find(name) !== null && !known.includes(name),
    );
    const found = listed.at(-1);
    return found ? { type: "found", name: found.name } : { type: "notFound", sinceMs: this.nowMs };
  }

  shown(name: string): UpstreamJob {
    const job = this.find(name);
    if (job === null) throw missing();
    const state = job.state === "refused" ? "failed" : job.state;
    const refusal = job.state === "refused" ? troubled("limited") : null;
    return { name, jobId: "job", input: job.input, createdAtMs: job.createdMs, state, said: state, refusal };
  }
}

const missing = () =>
  new ProviderError("PROVIDER_ITEM_FAILED", "no such job", { trouble: "no-model", upstreamStatus: 404 });
const overloaded = () =>
  new ProviderError("PROVIDER_ITEM_FAILED", "overloaded", { trouble: "failing", upstreamStatus: 503 });
const refused = () => new ProviderError("INVALID_ARGUMENT", "no", { upstreamStatus: 400 });
const failure = (error: ProviderError) => ({ error, block: null });
const KILLED = "killed";

/** Performs an action as the workers do, with the luck of the tape. */
function perform(world: World, action: JobAction): JobEvent | typeof KILLED {
  const { tape, row } = world;
  const trouble = <Result>(result: Result): Result => {
    world.isTroubled = true;
    return result;
  };
  switch (action.do) {
    case "upload": {
      const way = tape.pick("ok", "failing", "refused", KILLED, "lost");
      if (way === "failing") return trouble({ type: "failed", ...failure(troubled("failing")) });
      if (way === "refused") return trouble({ type: "failed", ...failure(refused()) });
      if (way !== "ok") return trouble(KILLED);
      return { type: "uploaded", input: `input/${++world.inputs}`, hasReferences: false };
    }
    case "create": {
      if (tape.chance(5)) return trouble(KILLED);
      // Something else may happen while the rate is awaited.
      const before = { creates: row.creates, sentAtMs: row.sentAtMs };
      const permitted = world.apply({ type: "mayCreate" }, false);
      if (permitted.do !== "send") return permitted.do === "rest" ? KILLED : { type: "due" };
      const way = tape.pick(
        "ok",
        "lost",
        "lostUnmade",
        "limited",
        "refused",
        "overloaded",
        "overloadedMade",
        "unsent",
        "killedBefore",
        "killedAfter",
      );
      if (way === "limited") return { type: "createFailed", before, ...failure(troubled("limited")) };
      if (way === "refused") return trouble({ type: "createFailed", before, ...failure(refused()) });
      if (way === "overloaded") return trouble({ type: "createFailed", before, ...failure(overloaded()) });
      if (way === "lostUnmade")
        return trouble({ type: "createFailed", before, ...failure(troubled("ambiguous")) });
      if (way === "unsent") return { type: "notSent", before };
      if (way === "killedBefore") return trouble(KILLED);
      const { name } = world.create(row.input ?? "");
      if (way === "ok") return { type: "created", name };
      if (way === "killedAfter") return trouble(KILLED);
      if (way === "overloadedMade")
        return trouble({ type: "createFailed", before, ...failure(overloaded()) });
      return trouble({ type: "createLost", why: "cut off" });
    }
    case "find":
      if (tape.chance(4))
        return trouble(
          tape.pick<JobEvent | typeof KILLED>({ type: "failed", ...failure(troubled("failing")) }, KILLED),
        );
      return world.list(row);
    case "stop":
      if (tape.chance(4)) return { type: "stopRefused" };
      try {
        world.stop(row.upstreamName ?? "");
      } catch {
        return { type: "stopRefused" };
      }
      return tape.chance(5) ? KILLED : { type: "stopTold" };
    case "poll": {
      const way = tape.pick("ok", "ok", "failing", "missing", KILLED);
      if (way === KILLED) return KILLED;
      try {
        if (way === "missing") throw trouble(missing());
        if (way === "failing") throw trouble(troubled("failing"));
        return { type: "polled", job: world.shown(row.upstreamName ?? ""), block: null };
      } catch (error) {
        return { type: "failed", ...failure(error as ProviderError) };
      }
    }
    case "fetch": {
      const job = world.find(row.upstreamName);
      const way = tape.pick("ok", "short", "failing", "forbidden", "killed");
      if (way === "failing") return trouble({ type: "failed", ...failure(troubled("failing")) });
      if (way === "forbidden" || job === null) return trouble({ type: "failed", ...failure(missing()) });
      if (job.state === "running") return trouble({ type: "fetched", gone: "it is shown before its end" });
      const some = way === "ok" ? [...job.made] : [...job.made].slice(0, 1);
      for (const at of some) {
        const item = world.items[at];
        if (item?.status === "pending") item.status = "success";
      }
      if (way === "killed") return trouble(KILLED);
      const gone = some.length < job.made.size ? "1 of 2" : null;
      if (gone === null) world.read.add(job.name);
      return gone === null ? { type: "fetched", gone } : trouble({ type: "fetched", gone });
    }
    case "wait":
      world.advance(Math.max(1, action.untilMs - world.nowMs));
      return { type: "due" };
    case "close": {
      const refusal = tape.chance(4) ? new Error("not now") : null;
      try {
        if (refusal === null) world.stop(action.name);
        const seen = tape.chance(5) ? "unseen" : world.shown(action.name);
        return {
          type: "closeSeen",
          name: action.name,
          refusal: refusal ?? (seen === "unseen" ? "x" : null),
          seen,
        };
      } catch {
        return { type: "closeSeen", name: action.name, refusal, seen: "missing" };
      }
    }
    case "discard":
      return tape.chance(4) ? KILLED : { type: "discarded" };
    default:
      return KILLED;
  }
}

const CALM = Array(12).fill("nothing") as ["nothing", ...("nothing" | "off" | "end" | "cancel" | "over")[]];

/** Walks a job to its end, whatever happens on the way. */
async function walk(choices: readonly number[], rule: JobFacts["unknownOutcome"]): Promise<World> {
  const world = new World(choices, rule);
  let event: JobEvent = { type: "resumed" };
  for (let steps = 0; world.row.step !== "closed" && steps < MOST_STEPS; steps++) {
    const isToClose = !isAtWork(world.row) || world.status !== "running";
    const action = world.apply(event, isToClose);
    const act = world.tape.pick(...CALM, "off", "off", "end", "cancel", "over");
    if (act === "off") {
      world.advance(world.tape.pick(HOUR_MS, 5 * HOUR_MS, 50 * HOUR_MS));
      event = { type: "resumed" };
      continue;
    }
    if (act === "end" && world.status === "running") await world.askToStop(false);
    if (act === "cancel" && world.status === "running") await world.askToStop(true);
    if (act === "over" && world.status === "running" && world.isTroubled) world.endBatch();
    const isChanged = act !== "nothing" && world.isUnwanted && action.do !== "wait";
    const done = isChanged && action.do !== "create" ? { type: "due" as const } : perform(world, action);
    // The owner of a batch that is being cancelled ends it once none of its jobs is awaited.
    const isAwaited = isAtWork(world.row) && world.row.stopAskedAtMs !== null;
    if (world.isCancelled && !isAwaited && world.status === "running") world.endBatch();
    if (!world.isCancelled && !isAtWork(world.row) && world.status === "running") world.endBatch();
    if (done !== KILLED) event = done;
    else event = isToClose ? { type: "due" } : { type: "resumed" };
    if (action.do === "rest") world.advance(MINUTE_MS);
  }
  return world;
}

function check(world: World): void {
  const story = `\n${world.log.join("\n")}\n${JSON.stringify([world.row, world.items, world.real])}`;
  expect(world.row.step, `the job does not end${story}`).toBe("closed");
  for (const [at, { status, maybePaid }] of world.items.entries()) {
    expect(status, `an item has no outcome${story}`).not.toBe("pending");
    const billed = world.real.filter(({ made }) => made.has(at)).length;
    const isFailed = status === "failed" ? 1 : 0;
    const said = maybePaid === "twice" ? 1 + isFailed : maybePaid === "once" ? isFailed : 0;
    const known = status === "success" ? 1 : 0;
    expect(billed, `image ${at} is billed unsaid${story}`).toBeLessThanOrEqual(known + said);
  }
  for (const { name, made } of world.real.filter((job) => world.read.has(job.name)))
    for (const at of made)
      expect(world.items[at]?.status, `an image of ${name} is lost${story}`).toBe("success");
  const isAllKnown = world.row.endedNames.length === world.real.length && !world.isTroubled;
  if (isAllKnown && world.isCancelled && !world.isEndedByPerson)
    for (const { status, maybePaid } of world.items)
      expect([status, maybePaid], `an image is marked that nobody can bill${story}`).toEqual([status, "no"]);
}

describe("a job of an upstream, whatever is answered, lost, killed, stopped or late", () => {
  it.each(["stop", "once"] as const)(
    "[JOB-12] ends, loses no image that was paid, and buys none twice unsaid (rule %s)",
    async (rule) => {
      const choices = fc.array(fc.nat({ max: 999 }), { maxLength: 120, size: "max" });
      await fc.assert(
        fc.asyncProperty(choices, async (each) => check(await walk(each, rule))),
        { numRuns: 3000 },
      );
    },
  );
});
