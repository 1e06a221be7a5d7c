import { type BatchStatus, type ItemError, MAKING_BATCH_STATUSES } from "../../contract/statuses.ts";
import { unknownOutcome } from "../../domain/batches/finish-item.ts";
import type { Block } from "../../domain/health/provider-health.ts";
import { waitingOn } from "../../domain/health/waiting.ts";
import { FORGOTTEN_MS, GIVE_UP_MS, paidCreates, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import {
  type JobProvider,
  ProviderError,
  type Trouble,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/stores.ts";
import type { MaybePaid } from "../../domain/records.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import type { WorkerDeps } from "../deps.ts";

/** The row of a job before a request to create it was counted. */
type BeforeCreate = Pick<UpstreamJobRecord, "creates" | "sentAtMs">;
/** A failure of an action, and why the upstream is not asked at all now; null when it is. */
interface Failure {
  error: ProviderError;
  block: Block | null;
}

/** What has happened to a job. Each action ends with one of these; it is applied to the row as that is by then. */
export type JobEvent =
  /** Nothing, but time has passed or the row was changed: what is to be done now? */
  | { type: "due" }
  /** A process begins to work on the job. */
  | { type: "resumed" }
  | { type: "nothingToUpload" }
  | { type: "uploaded"; input: string; hasReferences: boolean }
  /** The upstream and its rate permit a request to create the job. */
  | { type: "mayCreate" }
  /** The request that `mayCreate` has counted was not sent. */
  | { type: "notSent"; before: BeforeCreate }
  | { type: "created"; name: string }
  | ({ type: "createFailed"; before: BeforeCreate } & Failure)
  /** The answer to the request that creates the job did not come. */
  | { type: "createLost"; why: string }
  /** The upstream's list has a job that belongs to the row, and whose name the row does not have. */
  | { type: "found"; name: string }
  /** The whole list was read, from `sinceMs` on, and has none. */
  | { type: "notFound"; sinceMs: number }
  | { type: "stopTold" }
  | { type: "stopRefused" }
  | { type: "polled"; job: UpstreamJob; block: Block | null }
  /** `gone`: why results are missing that the upstream has; null when there are none. */
  | { type: "fetched"; gone: string | null }
  | ({ type: "failed" } & Failure)
  /** The upstream may not be asked now. `block`: null while another request finds out whether it may. */
  | { type: "blocked"; block: Block | null }
  | { type: "outageOver"; block: Block }
  /** A job that nobody needs was told to stop, and polled. `refusal`: why it could not be told; null when it was. */
  | { type: "closeSeen"; name: string; refusal: unknown; seen: UpstreamJob | "missing" | "unseen" }
  | { type: "discarded" };

/** What is to be done next for a job. */
export type JobAction =
  | { do: "upload" | "create" | "send" | "find" | "stop" | "poll" | "fetch" | "discard" }
  | { do: "close"; name: string }
  /**
   * `block`: the upstream cannot be used, and a change of its health ends the wait. `mayGiveUp`: too long an outage ends the
   * job. `refusal`: why a job that nobody needs could not be stopped.
   */
  | { do: "wait"; untilMs: number; block: Block | null; mayGiveUp: boolean; refusal?: unknown }
  /** Nothing, or nothing here: see `JobFacts.closes`. */
  | { do: "rest" };

/** What decides about a job beside its row. */
export interface JobFacts {
  nowMs: number;
  /** Of its batch. */
  status: BatchStatus;
  /** Its batch is being cancelled: nothing more is sent. */
  isCancelled: boolean;
  /** Its batch may be worked on here. */
  goesOn: boolean;
  /** It has items without an outcome. Known once it has ended. */
  hasPending: boolean;
  /** Who asks removes what the job has left behind at the upstream; else works on it. */
  closes: boolean;
  provider: string;
  times: JobProvider["times"];
  isPaid: boolean;
  unknownOutcome: WorkerDeps["unknownOutcome"];
  outageMs: number;
  random: () => number;
}

type Change = Partial<Omit<UpstreamJobRecord, "id" | "batchId">>;

interface Step {
  change?: Change;
  /** Marks of the job's pending items to change, in this order: those that are `from`, or all. */
  marks?: readonly { to: MaybePaid; from?: MaybePaid }[];
  /** Why the pending items fail. */
  failure?: ItemError;
  log?: { level: "warn" | "error"; message: string };
  /** Default: what is due in the row that is left. */
  action?: JobAction;
}

/** What follows from an event. All of it is stored in one transaction, before the action begins. */
export interface Next extends Step {
  change: Change;
  marks: NonNullable<Step["marks"]>;
  action: JobAction;
}

type Rule<Type extends JobEvent["type"]> = (
  job: UpstreamJobRecord,
  facts: JobFacts,
  event: Extract<JobEvent, { type: Type }>,
) => Step;

/** What follows from each event in a row. An event that is missing came too late, and changes nothing. */
type Rules = { due: Rule<"due"> } & { [Type in Exclude<JobEvent["type"], "due" | "resumed">]?: Rule<Type> };

/** How long nobody asks the upstream to stop a job once more that it has not stopped. */
export const SWEEP_MS = 60_000;
/** A job is polled less often the older it is. */
const LONGEST_POLL_MS = 300_000;
/** A refusal of results counts from this try on, after about ten minutes: gateways err, too. */
const MOST_REFUSED = 8;
/** So often are results fetched that end early, each time after twice the pause: for a quarter of an hour. */
const MOST_SHORT = 6;
/** No job is created more often: of two lost answers, both jobs may be paid. See `WorkerDeps.unknownOutcome`. */
const MOST_CREATES = 2;
const AGAIN = { baseMs: 5000, capMs: 300_000 };
/** Pause while another request finds out whether the upstream is available. */
const PROBING_MS = 1000;
/** Upper bound of a wait whose end is not known. */
const LONGEST_WAIT_MS = 3_600_000;
/** The same of the wait for a poll. */
const LONGEST_BLOCK_MS = 60_000;
/** The upstream's list is looked through for so long before a job whose own time is not known. */
const LOOK_BACK_MS = 24 * 3_600_000;

const REST: JobAction = { do: "rest" };

/** Whether nobody needs a job any more: what it has left behind at the upstream is to be removed. */
export function isToClose({ step }: Pick<UpstreamJobRecord, "step">, status: BatchStatus): boolean {
  return step === "done" || step === "closed" || !MAKING_BATCH_STATUSES.includes(status);
}

/**
 * Decides what an event changes about a job, and what is to be done next. The row is the whole state: a process that takes a
 * job up begins with `resumed`, wherever the one before was killed.
 *
 * | row        | event                                                   | next                                    |
 * |------------|---------------------------------------------------------|-----------------------------------------|
 * | `new`      | its input is uploaded                                   | `uploaded`                              |
 * | `new`      | none of its items could be built                        | `done`                                  |
 * | `uploaded` | the upstream may have forgotten the input               | `new`                                   |
 * | `uploaded` | its batch still runs, and a request is about to leave   | `sent`, stored before the request       |
 * | `uploaded` | a list has a job of an earlier request                  | `running`                               |
 * | `sent`     | the upstream returns a name, or a list has the job      | `running`                               |
 * | `sent`     | the upstream says that it took nothing                  | `uploaded`                              |
 * | `sent`     | no answer, and no list has the job for long             | `uploaded` once more, then `done`       |
 * | `running`  | the upstream has ended it before it began               | `uploaded`                              |
 * | `running`  | the upstream has ended or lost it, or never will        | `ended`                                 |
 * | `ended`    | its results are recorded, or cannot be had              | `fetched`                               |
 * | `fetched`  | results are missing, and a list has another job         | `running`, with the other job           |
 * | `fetched`  | else                                                    | `done`, and its other items have failed |
 * | any before | the upstream refuses, or cannot be used for too long    | `done`, and its items have failed       |
 * | any        | it is `done` or its batch has ended: see `closing`      | `closed`                                |
 */
export function next(job: UpstreamJobRecord, event: JobEvent, facts: JobFacts): Next {
  const begun = event.type === "resumed" ? BEGUN : {};
  const all: Next = {
    change: differing(job, { ...begun, ...pastTimes(job, facts.nowMs) }),
    marks: [],
    action: REST,
  };
  let now: JobEvent = event.type === "resumed" ? { type: "due" } : event;
  for (;;) {
    const row = { ...job, ...all.change };
    const isElsewhere = now.type === "due" && isToClose(row, facts.status) !== facts.closes;
    const { action, ...step } = isElsewhere ? { action: REST } : follow(row, now, facts);
    all.change = { ...all.change, ...step.change };
    all.marks = [...all.marks, ...(step.marks ?? [])];
    if (step.failure) all.failure = step.failure;
    if (step.log) all.log = step.log;
    if (action || all.failure) return { ...all, action: action ?? REST };
    now = { type: "due" };
  }
}

function follow(job: UpstreamJobRecord, event: JobEvent, facts: JobFacts): Step {
  const rules: Rules = isToClose(job, facts.status) ? CLOSING : TABLE[job.step as AtWork];
  const rule = rules[event.type as "due"] as Rule<JobEvent["type"]> | undefined;
  return rule?.(job, facts, event) ?? {};
}

/** What a process knows of its own requests alone. The next one asks anew. */
const BEGUN = { failures: 0, missingSinceMs: null, isStopTold: false, polledAtMs: null };

/**
 * Corrects the times of a job that lie in the future, because the clock was ahead: everything that waits for them would wait
 * until then.
 */
function pastTimes(job: UpstreamJobRecord, nowMs: number): Change {
  const change: Change = {};
  if (job.createdAtMs > nowMs) change.createdAtMs = nowMs - LOOK_BACK_MS;
  const times = ["uploadedAtMs", "sentAtMs", "polledAtMs", "missingSinceMs", "stopAskedAtMs"] as const;
  for (const name of times) if ((job[name] ?? 0) > nowMs) change[name] = nowMs;
  return change;
}

function differing(job: UpstreamJobRecord, change: Change): Change {
  const names = Object.keys(change) as (keyof Change)[];
  return Object.fromEntries(
    names.filter((name) => job[name] !== change[name]).map((name) => [name, change[name]]),
  );
}

type AtWork = Exclude<JobStep, "done" | "closed">;

/** The rules of a row whose job is at work. */
const TABLE: Readonly<Record<AtWork, Rules>> = {
  new: {
    due: whileWanted(() => ({ action: { do: "upload" } })),
    nothingToUpload: () => to("done"),
    uploaded: (_, { nowMs }, { input, hasReferences }) =>
      to("uploaded", { input, hasReferences, uploadedAtMs: nowMs }),
    blocked: waitWhileBlocked,
    failed: againOrEnd,
    outageOver: endAfterOutage,
  },
  uploaded: {
    due: whileWanted((job, facts) => {
      if (job.input === null || facts.nowMs - (job.uploadedAtMs ?? 0) > FORGOTTEN_MS) return to("new");
      // An earlier request may have made it although the upstream said that it took none.
      return paidCreates(job) > 0 ? { action: { do: "find" } } : createUnlessStopped(job, facts);
    }),
    found: run,
    notFound: createUnlessStopped,
    created: run,
    mayCreate: (job, { nowMs, status, isCancelled, goesOn, isPaid }) => {
      if (status !== "running" || isCancelled || !goesOn) return { action: REST };
      if (job.stopAskedAtMs !== null) return {};
      const creates = job.creates + 1;
      // After a restore the items are marked, and the job is another one than was paid for.
      const isFirst = paidCreates({ ...job, creates }) === 1;
      return {
        ...to("sent", { creates, sentAtMs: nowMs }),
        marks: isPaid ? [isFirst ? { to: "twice", from: "once" } : { to: "twice" }] : [],
        action: { do: "send" },
      };
    },
    blocked: waitWhileBlocked,
    failed: (job, facts, failure) =>
      isForgotten(job, facts)
        ? createUnlessStopped(job, facts)
        : again(job, facts, failure, { mayGiveUp: true }),
    outageOver: endAfterOutage,
  },
  sent: {
    due: whileWanted(() => ({ action: { do: "find" } })),
    created: run,
    createFailed: (job, facts, event) => {
      const { error } = event;
      const isTaken = mayBeCreated(error) && !isOverloaded(error);
      if (isTaken) return { log: lostAnswer(error.message) };
      const back = takenBack(event.before, isOverloaded(error));
      if (!error.retryable) return and(back, giveUp({ ...job, ...back.change }, facts, error));
      return { ...back, action: waitAfter(facts, event, { tries: 1, mayGiveUp: true }) };
    },
    createLost: (_, __, { why }) => ({ log: lostAnswer(why) }),
    notSent: (job, _, { before }) => (job.creates > before.creates ? takenBack(before, false) : {}),
    found: run,
    notFound: (job, facts, { sinceMs }) => stillLost(job, facts, sinceMs),
    failed: (job, facts, failure) =>
      isForgotten(job, facts)
        ? stillLost(job, facts, facts.nowMs)
        : again(job, facts, failure, { mayGiveUp: false }),
  },
  running: {
    due: whileWanted((job, facts) => {
      const isLate = facts.nowMs - sentAt(job) >= facts.times.jobMs;
      const stopAskedAtMs = job.stopAskedAtMs ?? (isLate ? facts.nowMs : null);
      if (stopAskedAtMs === null || job.isStopTold) return pollWhenDue(job, facts);
      return { change: differing(job, { stopAskedAtMs }), action: { do: "stop" } };
    }),
    stopTold: (job, facts) => and({ change: { isStopTold: true } }, pollWhenDue(job, facts)),
    stopRefused: pollWhenDue,
    blocked: (_, { nowMs }, { block }) => {
      const untilMs = Math.min(block?.untilMs ?? Number.POSITIVE_INFINITY, nowMs + LONGEST_BLOCK_MS);
      return { action: { do: "wait", untilMs, block: null, mayGiveUp: false } };
    },
    polled: (job, facts, { job: seen, block }) => {
      const { state, said, refusal = null } = seen;
      if (refusal !== null && job.stopAskedAtMs === null)
        return createAgain(job, facts, seen, { error: refusal, block });
      const change = { state, said, polledAtMs: facts.nowMs, missingSinceMs: null };
      if (state !== "running") return to("ended", { ...change, endedAtMs: facts.nowMs });
      return awaitEnd(job, facts, change);
    },
    // Troubles of polling end no job, but one that is missing for long is lost.
    failed: (job, facts, { error }) => {
      const isMissing = error.upstreamStatus === 404;
      const missingSinceMs = isMissing ? (job.missingSinceMs ?? facts.nowMs) : null;
      return awaitEnd(job, facts, { polledAtMs: facts.nowMs, missingSinceMs });
    },
  },
  ended: {
    due: whileWanted(() => ({ action: { do: "fetch" } })),
    fetched: (job, facts, { gone }) => {
      const short = job.failures + 1;
      if (gone === null || short >= MOST_SHORT || isForgotten(job, facts)) return to("fetched", { gone });
      const retryAfterMs = facts.times.pollMs * 2 ** (short - 1);
      const error = new ProviderError("RESULT_MISSING", gone, { trouble: "failing", retryAfterMs });
      return again(job, facts, { error, block: null }, { mayGiveUp: false });
    },
    failed: (job, facts, failure) => {
      const isFinal = isRefused(failure.error) && job.failures + 1 >= MOST_REFUSED;
      if (isFinal || isForgotten(job, facts)) return to("fetched", { gone: failure.error.message });
      return again(job, facts, failure, { mayGiveUp: false });
    },
  },
  fetched: {
    // A second job that may exist after a lost answer may have results that this one did not return.
    due: whileWanted((job, facts) =>
      facts.hasPending && unnamedJobs(job) > 0 ? { action: { do: "find" } } : endOfResults(job, facts),
    ),
    found: (job, _, { name }) => {
      const before = { endedNames: endedNames(job), state: null, endedAtMs: null, gone: null };
      return to("running", { ...before, upstreamName: name, polledAtMs: null, isStopTold: false });
    },
    notFound: endOfResults,
    failed: (job, facts, failure) =>
      isForgotten(job, facts) ? endOfResults(job, facts) : again(job, facts, failure, { mayGiveUp: false }),
  },
};

/**
 * The rules of a row whose job nobody needs any more: jobs that may still run are stopped, those whose names are unknown are
 * looked for, and the uploaded input is deleted once no job reads it. Each has an hour.
 */
const CLOSING: Rules = {
  due: (job, { nowMs }) => {
    if (job.step === "closed") return { action: REST };
    const { upstreamName: name, stopAskedAtMs } = job;
    if (name !== null)
      return { change: { stopAskedAtMs: stopAskedAtMs ?? nowMs }, action: { do: "close", name } };
    return unnamedJobs(job) > 0 ? { action: { do: "find" } } : discardOrClose(job, nowMs);
  },
  closeSeen: (job, facts, { name, refusal, seen }) => {
    // Another process has ended it meanwhile.
    if (name !== job.upstreamName) return {};
    const change = { upstreamName: null, endedNames: endedNames(job), stopAskedAtMs: null };
    const isGivenUp = facts.nowMs - (job.stopAskedAtMs ?? facts.nowMs) >= GIVE_UP_MS;
    const isRunning = seen === "unseen" || (seen !== "missing" && seen.state === "running");
    // Gateways err, too: a job that nobody could stop is not gone after one such response.
    const isUnclear = seen === "missing" && refusal !== null;
    if (!isRunning && !(isUnclear && !isGivenUp)) return { change };
    if (!isGivenUp) return { action: waitForSweep(facts, isUnclear ? null : refusal) };
    const message = "a job could not be stopped within an hour; it may run on upstream, and be billed";
    return { change, log: { level: "error", message } };
  },
  found: (_, __, { name }) => ({ change: { upstreamName: name } }),
  notFound: (job, facts) =>
    facts.nowMs - sentAt(job) < GIVE_UP_MS
      ? { action: waitForSweep(facts, null) }
      : discardOrClose(job, facts.nowMs),
  discarded: (job, { nowMs }) => (job.upstreamName === null ? { change: closed(nowMs), action: REST } : {}),
  // What follows came after the end of the batch, or of the job.
  uploaded: (_, { nowMs }, { input }) => ({ change: { input, uploadedAtMs: nowMs } }),
  created: (job, { nowMs }, { name }) => {
    if (job.upstreamName !== null || job.endedNames.includes(name)) return {};
    const again = job.step === "closed" ? ({ step: "done" } as const) : {};
    return { change: { upstreamName: name, sentAtMs: job.sentAtMs ?? nowMs, ...again } };
  },
  createFailed: (job, _, { before, error }) => {
    const isTaken = mayBeCreated(error) && !isOverloaded(error);
    return isTaken || job.step !== "sent" ? {} : takenBack(before, isOverloaded(error));
  },
  notSent: (job, _, { before }) =>
    job.step === "sent" && job.creates > before.creates ? takenBack(before, false) : {},
};

/** Nothing is sent for a batch that is being cancelled, but what was sent is awaited. */
function whileWanted(rule: Rule<"due">): Rule<"due"> {
  return (job, facts, event) => {
    const isWanted = facts.status === "running" && (!facts.isCancelled || job.stopAskedAtMs !== null);
    return isWanted ? rule(job, facts, event) : { action: REST };
  };
}

function to(step: JobStep, change: Change = {}): { change: Change } {
  return { change: { step, failures: 0, ...change } };
}

function and(step: Step, then: Step): Step {
  return {
    ...step,
    ...then,
    change: { ...step.change, ...then.change },
    marks: [...(step.marks ?? []), ...(then.marks ?? [])],
  };
}

const sentAt = ({ sentAtMs, createdAtMs }: UpstreamJobRecord) => sentAtMs ?? createdAtMs;
const endedNames = ({ endedNames: names, upstreamName: name }: UpstreamJobRecord) =>
  name === null ? names : [...names, name];
const isForgotten = (job: UpstreamJobRecord, { nowMs }: JobFacts) => nowMs - sentAt(job) > FORGOTTEN_MS;
const closed = (nowMs: number) => ({ step: "closed", closedAtMs: nowMs }) as const;
const discardOrClose = ({ input }: UpstreamJobRecord, nowMs: number): Step =>
  input === null ? { change: closed(nowMs), action: REST } : { action: { do: "discard" } };
const waitForSweep = ({ nowMs }: JobFacts, refusal: unknown): JobAction => {
  return { do: "wait", untilMs: nowMs + SWEEP_MS, block: null, mayGiveUp: false, refusal };
};
const lostAnswer = (why: string) => {
  const message = `the answer to the creation of a job was lost; looking for the job: ${why}`;
  return { level: "warn", message } as const;
};

/** Waits after a failure of the action that is due. */
function again(
  job: UpstreamJobRecord,
  facts: JobFacts,
  failure: Failure,
  { mayGiveUp }: { mayGiveUp: boolean },
): Step {
  const failures = job.failures + 1;
  return { change: { failures }, action: waitAfter(facts, failure, { tries: failures, mayGiveUp }) };
}

function againOrEnd(job: UpstreamJobRecord, facts: JobFacts, failure: Failure): Step {
  return failure.error.retryable
    ? again(job, facts, failure, { mayGiveUp: true })
    : giveUp(job, facts, failure.error);
}

/** Returns the wait after a failure that may pass. `tries` counts those in a row. */
function waitAfter(
  facts: JobFacts,
  { error, block }: Failure,
  { tries, mayGiveUp }: { tries: number; mayGiveUp: boolean },
): JobAction {
  const { message, trouble, said, retryAfterMs } = error;
  const ownMs = Math.max(AGAIN.baseMs / 2, backoffMs(tries, AGAIN, facts.random));
  const untilMs = facts.nowMs + (retryAfterMs ?? ownMs);
  const own = { provider: facts.provider, trouble: trouble ?? "failing", message, said, untilMs };
  return waitOut(facts, block ?? own, mayGiveUp);
}

function waitOut({ nowMs }: JobFacts, block: Block, mayGiveUp: boolean): JobAction {
  const endMs = Math.max(nowMs + 1, block.untilMs ?? Number.POSITIVE_INFINITY);
  return { do: "wait", untilMs: Math.min(nowMs + LONGEST_WAIT_MS, endMs), block, mayGiveUp };
}

function waitWhileBlocked(_: UpstreamJobRecord, facts: JobFacts, { block }: { block: Block | null }): Step {
  if (block) return { action: waitOut(facts, block, true) };
  const untilMs = facts.nowMs + PROBING_MS;
  return { action: { do: "wait", untilMs, block: null, mayGiveUp: false } };
}

function endAfterOutage(job: UpstreamJobRecord, facts: JobFacts, { block }: { block: Block }): Step {
  const message = `The upstream could not be used for too long. ${waitingOn(block).message}`;
  return giveUp(job, facts, { code: "PROVIDER_ITEM_FAILED", message, source: "provider" });
}

/** Why the items of a job fail that was ended before the upstream took it. */
const ENDED: ItemError = {
  code: "CANCELLED",
  message: "The batch was ended before the upstream took the job.",
  source: "provider",
};
/** Why the items of a job fail if nobody knows whether the job exists. */
const LOST: ItemError = {
  code: "OUTCOME_UNKNOWN",
  message:
    "The answer of the upstream to the creation of the job was lost, and its list does not have the job. The images may have been billed.",
  source: "provider",
};

function createUnlessStopped(job: UpstreamJobRecord, facts: JobFacts): Step {
  if (job.stopAskedAtMs === null) return { action: { do: "create" } };
  if (paidCreates(job) === 0) return giveUp(job, facts, ENDED);
  return to("sent", { sentAtMs: job.sentAtMs ?? job.stopAskedAtMs });
}

/** The upstream's name of the job is known. */
function run(job: UpstreamJobRecord, { nowMs }: JobFacts, { name }: { name: string }): Step {
  if (job.endedNames.includes(name)) return {};
  return to("running", {
    upstreamName: name,
    sentAtMs: job.sentAtMs ?? nowMs,
    polledAtMs: null,
    isStopTold: false,
  });
}

/** Takes back that a job was sent. `mayExist`: the request may have made it all the same, and counts. */
function takenBack({ creates, sentAtMs }: BeforeCreate, mayExist: boolean): Step & { change: Change } {
  if (mayExist) return { ...to("uploaded", { sentAtMs }), marks: [{ from: "no", to: "once" }] };
  return { ...to("uploaded", { creates, sentAtMs }), marks: [{ from: "twice", to: "once" }] };
}

/** A list that was read long enough after the request does not have the job: it is created once more, or given up. */
function stillLost(job: UpstreamJobRecord, facts: JobFacts, sinceMs: number): Step {
  const { nowMs, times, isPaid, unknownOutcome: rule } = facts;
  if (sinceMs - sentAt(job) < times.lostMs)
    return { action: { do: "wait", untilMs: nowMs + times.pollMs, block: null, mayGiveUp: false } };
  const isTooOld = nowMs - job.createdAtMs > FORGOTTEN_MS;
  const most = isPaid && rule === "stop" ? 1 : MOST_CREATES;
  if (isTooOld || job.stopAskedAtMs !== null || paidCreates(job) >= most) return giveUp(job, facts, LOST);
  const message = "a job whose answer was lost was not found; creating another, which may be paid twice";
  return { ...to("uploaded"), log: { level: "warn", message } };
}

/** Polls a job, or waits until that is due. */
function pollWhenDue(job: UpstreamJobRecord, facts: JobFacts): Step {
  const untilMs = pollAt(job, facts);
  if (untilMs <= facts.nowMs) return { action: { do: "poll" } };
  return { action: { do: "wait", untilMs, block: null, mayGiveUp: false } };
}

function pollAt(job: UpstreamJobRecord, { nowMs, times: { pollMs, jobMs } }: JobFacts): number {
  const { polledAtMs, stopAskedAtMs } = job;
  if (polledAtMs === null) return nowMs;
  const ageMs = nowMs - sentAt(job);
  const isStuck = stopAskedAtMs !== null || ageMs >= jobMs;
  // Somebody may wait for the end of a job that is to be stopped, which mostly comes at once.
  const stoppingMs = Math.min(pollMs, Math.max(1000, (nowMs - (stopAskedAtMs ?? nowMs)) / 10));
  return polledAtMs + (isStuck ? stoppingMs : Math.max(pollMs, Math.min(LONGEST_POLL_MS, ageMs / 20)));
}

/** The upstream has not ended the job yet. From the first request to stop it, it has an hour for that. */
function awaitEnd(job: UpstreamJobRecord, facts: JobFacts, change: Change): Step {
  const row = { ...job, ...change };
  const said = reasonToEnd(row, facts);
  if (said !== null) return to("ended", { ...change, state: null, said, endedAtMs: facts.nowMs });
  return { change, action: { do: "wait", untilMs: pollAt(row, facts), block: null, mayGiveUp: false } };
}

function reasonToEnd(job: UpstreamJobRecord, { nowMs, times }: JobFacts): string | null {
  const { missingSinceMs, stopAskedAtMs } = job;
  const isGone =
    missingSinceMs !== null && (nowMs - missingSinceMs >= times.lostMs || nowMs - sentAt(job) > FORGOTTEN_MS);
  if (isGone) return "The upstream does not know the job any more. The images may have been billed.";
  if (stopAskedAtMs === null || nowMs - stopAskedAtMs < GIVE_UP_MS) return null;
  const isLate = stopAskedAtMs - sentAt(job) >= times.jobMs;
  const before = isLate ? ` within ${Math.round(times.jobMs / 3_600_000)} hours, nor` : "";
  return `The upstream did not end the job${before} after it was asked to stop it. The images may be billed.`;
}

/** Returns how long a job waits that the upstream has ended before it began, for a limit or for money. */
export function pauseAfterRefusal(
  { refusals }: UpstreamJobRecord,
  refusal: ProviderError,
  random: () => number,
) {
  return Math.max(refusal.retryAfterMs ?? 0, AGAIN.baseMs / 2, backoffMs(refusals + 1, AGAIN, random));
}

/** Such a job is created again from its input, for as long as an outage may last. */
function createAgain(
  job: UpstreamJobRecord,
  facts: JobFacts,
  { name, said }: UpstreamJob,
  failure: Failure,
): Step {
  const { nowMs, outageMs } = facts;
  const refusals = job.refusals + 1;
  const refusedSinceMs = job.refusedSinceMs ?? nowMs;
  const names = { upstreamName: null, endedNames: [...job.endedNames, name] };
  const times = { sentAtMs: null, state: null, polledAtMs: null };
  const message = `the upstream ended a job before it began; it is created again: ${said}`;
  const back: Step = {
    ...to("uploaded", { ...names, ...times, refusals, refusedSinceMs, said }),
    marks: [{ to: "once", from: "twice" }],
    log: { level: "warn", message },
  };
  if (nowMs - refusedSinceMs < outageMs)
    return { ...back, action: waitAfter(facts, failure, { tries: refusals, mayGiveUp: true }) };
  const { code, message: why, source } = failure.error;
  const late = { code, message: `The upstream took no job for too long. ${why}`, source };
  return and(back, giveUp({ ...job, ...back.change }, facts, late));
}

/** Whether a refusal means that the results no longer exist. Other failures may pass. */
function isRefused({ upstreamStatus, trouble }: ProviderError): boolean {
  return upstreamStatus !== null && (trouble === null || trouble === "no-model" || trouble === "forbidden");
}

/** The results of an ended job are recorded; one that has failed may have some. The other items fail. */
function endOfResults(job: UpstreamJobRecord, facts: JobFacts): Step {
  const { state, said, gone } = job;
  const source = "provider";
  const isOfJob = state !== "succeeded";
  const lost =
    gone && `The results of the upstream's job could not be fetched, and may have been billed: ${gone}`;
  const names = { upstreamName: null, endedNames: endedNames(job) };
  if (!isOfJob) {
    const message = lost ?? "The upstream's job ended without a result for this item.";
    const code = lost ? "OUTCOME_UNKNOWN" : "RESULT_MISSING";
    return endWith(job, facts, { code, message, source, isOfJob }, names);
  }
  const message = [said ?? "The upstream ended the job.", ...(lost ? [lost] : [])].join(" ");
  // Nobody knows what became of a job that has not ended.
  const code = lost !== null || state === null ? "OUTCOME_UNKNOWN" : "PROVIDER_ITEM_FAILED";
  return endWith(job, facts, { code, message, source, isOfJob }, names);
}

/** The upstream refuses the job, or could not be used for too long. */
function giveUp(job: UpstreamJobRecord, facts: JobFacts, { code, message, source }: ItemError): Step {
  // After requests that were all refused, nothing has a time.
  const isSent = unnamedJobs(job) > 0 && job.sentAtMs !== null;
  const billed =
    isSent && !message.includes("may have been billed")
      ? " Another request was sent, and the images may have been billed."
      : "";
  const isLost = isSent || code === "OUTCOME_UNKNOWN";
  const why = { code: isLost ? ("OUTCOME_UNKNOWN" as const) : code, message: message + billed, source };
  return endWith(job, facts, { ...why, isOfJob: true });
}

/**
 * Ends a job: its items without a result fail. An error of which nobody knows whether the images were made is no failure of
 * the job. Who had the job stopped has decided already about images that it may have made.
 */
function endWith(
  job: UpstreamJobRecord,
  { isPaid, isCancelled, times }: JobFacts,
  { isOfJob, ...why }: ItemError & { isOfJob: boolean },
  names: Change = {},
): Step {
  const { stopAskedAtMs } = job;
  const isUnknown = why.code === "OUTCOME_UNKNOWN";
  // By a person, and not because of its time limit.
  const isStopped = stopAskedAtMs !== null && stopAskedAtMs - sentAt(job) < times.jobMs;
  const isLost = isUnknown && isPaid && !isStopped;
  const plain = isOfJob ? "PROVIDER_ITEM_FAILED" : "RESULT_MISSING";
  const failure = isLost ? unknownOutcome(why) : { ...why, code: isUnknown ? plain : why.code };
  // It may have made images that it did not return. Another upstream may be asked for these, unless the batch is cancelled.
  const isKnown = !isUnknown && unnamedJobs(job) === 0;
  const mayBeBilled = stopAskedAtMs !== null && paidCreates(job) === 1 && !(isCancelled && isKnown);
  return {
    ...to("done", { ...names, ...(isOfJob && !isLost ? { error: failure.message } : {}) }),
    marks: mayBeBilled ? [{ to: "once", from: "no" }] : [],
    failure,
  };
}

/** Failures of a request to create a job after which none exists for sure. */
const NOTHING_CREATED: readonly (Trouble | null)[] = [
  "credential",
  "billing",
  "forbidden",
  "no-model",
  "limited",
  "unreachable",
];

const OVERLOADED = [503, 529];

/** Returns whether the upstream says that it takes nothing now. A gateway may say so although the job was made. */
function isOverloaded({ trouble, upstreamStatus }: ProviderError): boolean {
  return trouble === "failing" && upstreamStatus !== null && OVERLOADED.includes(upstreamStatus);
}

/** Returns whether a job may exist although the request to create it has failed. */
function mayBeCreated({ trouble, retryable }: ProviderError): boolean {
  return trouble === null ? retryable : !NOTHING_CREATED.includes(trouble);
}
