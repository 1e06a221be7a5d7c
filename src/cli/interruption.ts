import PQueue from "p-queue";
import type { Batch } from "../client/answers.ts";
import { cancelBatch } from "../client/batches.ts";
import { deadline, SHORTEST_REMOTE_INTERVAL_MS, untilCancelled } from "../client/poll.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { isTerminal } from "../contract/statuses.ts";
import { formatDuration } from "../kernel/durations.ts";
import { counted } from "../kernel/text.ts";
import type { Submissions } from "../runs/send.ts";
import type { CommandContext, Output } from "./command.ts";
import type { ConnectedService } from "./connect/connection.ts";
import { describeCancel } from "./output/batches.ts";
import { nextCommand } from "./output/next-step.ts";

/** Wraps an output and remembers from its progress events which batches have ended. */
export function trackEnded(output: Output): { output: Output; hasEnded: (id: string) => boolean } {
  const ended = new Set<string>();
  const watched: Output = {
    ...output,
    event: (event) => {
      if (event.event === "progress" && isTerminal(event.status)) ended.add(event.batch_id);
      output.event(event);
    },
  };
  return { output: watched, hasEnded: (id) => ended.has(id) };
}

const REASONS: Readonly<Record<string, (error: Error) => string>> = {
  INTERRUPTED: () => "Interrupted",
  TERMINATED: () => "Terminated",
  TIMEOUT: ({ message }) => message.replace(/[;:.].*$/s, ""),
};

/** The words that begin a message about a stop (signal or time limit); null for any other error. */
export function stopReason(error: unknown): string | null {
  if (!(error instanceof ImgbatchError) || !Object.hasOwn(REASONS, error.code)) return null;
  return REASONS[error.code]?.(error) ?? null;
}

/** Whether the reason of a stop is a signal, and not a time limit. */
export function isInterruption(error: unknown): boolean {
  return stopReason(error) !== null && (error as ImgbatchError).code !== "TIMEOUT";
}

/** Adds to a stop (signal or time limit) what happens to the batches. Returns any other error unchanged. */
export function explainStop<Thrown>(
  error: Thrown,
  { kind, stopsWithCommand }: Pick<ConnectedService, "kind" | "stopsWithCommand">,
  batchIds: readonly string[],
): Thrown | ImgbatchError {
  const why = stopReason(error);
  if (why === null || !(error instanceof ImgbatchError) || batchIds.length === 0) return error;
  const [verb, be] = batchIds.length === 1 ? ["goes", "is"] : ["go", "are"];
  const going = kind === "remote" ? `${verb} on` : `${verb} on while its service runs`;
  const elsewhere = batchIds.length === 1 ? "it" : "them";
  // The service is inside another command, which may wait for the same batches.
  const stopped =
    kind === "running" ? `unless another command waits for ${elsewhere}, too` : "and nothing more is sent";
  const fate = stopsWithCommand ? `${be} stopped, ${stopped}` : going;
  return new ImgbatchError(error.code, `${why}; ${batchIds.join(", ")} ${fate}.`);
}

/**
 * Returns the polling interval in ms. A remote service is polled at most every 10 s: a shorter interval is raised, with a
 * warning. A service on this machine takes any interval.
 */
export function pollInterval(
  askedMs: number | undefined,
  { isLocal }: { isLocal: boolean },
  output: Pick<Output, "warn">,
): number | undefined {
  if (askedMs === undefined || isLocal || askedMs >= SHORTEST_REMOTE_INTERVAL_MS) return askedMs;
  const shortest = formatDuration(SHORTEST_REMOTE_INTERVAL_MS);
  output.warn(
    `warning: --interval ${formatDuration(askedMs)} is too short for a remote service; polling every ${shortest}`,
  );
  return SHORTEST_REMOTE_INTERVAL_MS;
}

/** How long the cancellations may take together after an interruption. */
const CANCEL_TIMEOUT_MS = 20_000;
/** How long to wait for the responses of pending creates, so that their batches can be cancelled too. */
const ANSWER_TIMEOUT_MS = 10_000;

const AGAIN =
  "run the same command again: it finds every batch by its key and goes on, and nothing is paid twice";

interface StopOptions extends RunDirectory {
  cancelOnInterrupt: boolean;
  /** The advice for making the cancelled images again. */
  anew: string;
}

interface RunDirectory {
  dir: string;
  /** The directory for messages. */
  shownDir: string;
}

/**
 * Saves the images that cancelled batches of a run have made, and says how many are in its directory. Returns that number; null
 * if another command is at work there, or they could not be saved: that is said, and they stay at the service.
 */
export async function saveMade(
  context: CommandContext,
  service: ConnectedService,
  { dir, shownDir }: RunDirectory,
): Promise<number | null> {
  const { clock, signal, output: reporter } = context;
  // Few commands save images, and that takes libraries that load slowly.
  const [{ collectSoFar }, { withRunLock }, { readRunState }, { writeRunReports }] = await Promise.all([
    import("../runs/collect-run.ts"),
    import("../runs/directory/claim.ts"),
    import("../runs/directory/run-state.ts"),
    import("./output/reports.ts"),
  ]);
  const save = async () => {
    const state = await readRunState(dir);
    const outcome = state && (await collectSoFar({ dir, state, service, clock, reporter, signal }));
    if (outcome === null) return 0;
    const { model = null, task_name: name = null } = state?.request ?? {};
    await writeRunReports(context, { outcome, shownDir, model, name });
    return outcome.lines.filter(({ status, files }) => status === "success" && files.length > 0).length;
  };
  try {
    const count = await withRunLock(dir, { clock, signal, patienceMs: 0 }, save);
    if (count > 0) reporter.note(`${counted(count, "image")} on disk and verified in ${shownDir}`);
    return count;
  } catch (error) {
    const isInUse = error instanceof ImgbatchError && error.code === "DIRECTORY_IN_USE";
    const why = error instanceof Error ? error.message : String(error);
    if (!isInUse) reporter.warn(`warning: the finished images are not in ${shownDir} yet: ${why}`);
    return null;
  }
}

/**
 * Runs work that creates batches. If it is stopped, the error reports what happens to each batch, also to those whose
 * creation has no response yet. With `cancelOnInterrupt`, an interruption first waits for the pending responses and
 * cancels the batches.
 */
export async function stoppable<T>(
  context: CommandContext,
  service: ConnectedService,
  options: StopOptions,
  work: (context: CommandContext, submissions: Submissions) => Promise<T>,
): Promise<T> {
  const answers = waitForAnswers(context, service, options.cancelOnInterrupt);
  const { submissions } = answers;
  const { output, hasEnded } = trackEnded(context.output);
  try {
    return await work({ ...context, output }, submissions);
  } catch (error) {
    output.settle();
    const known = [...submissions.known.values()];
    const going = known.filter(({ id, isDone }) => !isDone && !hasEnded(id)).map(({ id }) => id);
    const stop = stopOf(context.signal, error);
    if (stop === null) throw error;
    if (options.cancelOnInterrupt && stop.code !== "TIMEOUT" && going.length > 0)
      throw await cancelled(context, service, { submissions, going, stop, options });
    throw explain(stop, service, submissions, going);
  } finally {
    answers.stop();
  }
}

/**
 * The stop that ended the work; null if there was none. An error after an interruption is its consequence, so the
 * interruption wins.
 */
function stopOf({ reason }: AbortSignal, error: unknown): ImgbatchError | null {
  const stop = reason instanceof ImgbatchError && reason.code !== "TIMEOUT" ? reason : error;
  return stop instanceof ImgbatchError && stopReason(stop) !== null ? stop : null;
}

/** Tracks the creates of a command. If an interruption is to cancel their batches, it first waits for their responses. */
function waitForAnswers(
  { signal, output }: CommandContext,
  { pause }: ConnectedService,
  cancelOnInterrupt: boolean,
): { submissions: Submissions; stop: () => void } {
  const controller = new AbortController();
  const submissions: Submissions = {
    answerSignal: controller.signal,
    known: new Map(),
    open: new Set(),
    total: 0,
  };
  let timer: NodeJS.Timeout | undefined;
  const end = () => controller.abort(signal.reason);
  const onStop = () => {
    const stop = stopOf(signal, signal.reason);
    const isInterruption = stop !== null && stop.code !== "TIMEOUT";
    // Nothing is begun for what is about to be cancelled.
    if (cancelOnInterrupt && isInterruption) pause?.();
    if (!cancelOnInterrupt || !isInterruption || submissions.open.size === 0) return end();
    output.note("interrupted: waiting for the service to answer (interrupt again to leave at once)");
    timer = setTimeout(end, ANSWER_TIMEOUT_MS);
  };
  if (signal.aborted) onStop();
  signal.addEventListener("abort", onStop, { once: true });
  const stop = () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", onStop);
  };
  return { submissions, stop };
}

/** Returns the beginning of a sentence that names the batches that may exist without a known id. Null for none. */
function describeOpen({ open, total }: Submissions): string | null {
  const numbers = [...open].map(({ index }) => index + 1).sort((a, b) => a - b);
  if (numbers.length === 0) return null;
  if (total === 1) return "the batch may exist: its request was sent, and no response arrived";
  const [which, whose] =
    numbers.length === 1 ? ["batch", "its request was"] : ["batches", "their requests were"];
  return `${which} ${numbers.join(", ")} of ${total} may exist: ${whose} sent, and no response arrived`;
}

/** The error of a stop, with what happens to the known batches and to those that may exist. */
function explain(
  stop: ImgbatchError,
  service: ConnectedService,
  submissions: Submissions,
  going: readonly string[],
): Error {
  const open = describeOpen(submissions);
  const why = stopReason(stop) ?? stop.message;
  if (open !== null) {
    const known = going.length === 0 ? why : explainStop(stop, service, going).message.replace(/\.$/, "");
    return new ImgbatchError(stop.code, `${known}; ${open}.`, { advice: AGAIN });
  }
  if (going.length > 0 || stop.code !== "TIMEOUT") return explainStop(stop, service, going);
  const [message, advice] =
    submissions.known.size === 0
      ? [
          "the service has not answered with a batch yet",
          "run the same command again with more time in --timeout: nothing is paid twice",
        ]
      : [
          "the batches have ended, but not all of their images were fetched",
          "run the same command again: it fetches what is missing",
        ];
  return new ImgbatchError("TIMEOUT", `${why}; ${message}.`, { advice });
}

/** How many batches are cancelled together. Each waits for what it has sent. */
export const CANCELS_AT_ONCE = 32;

async function cancelled(
  context: CommandContext,
  service: ConnectedService,
  run: { submissions: Submissions; going: readonly string[]; stop: ImgbatchError; options: StopOptions },
): Promise<ImgbatchError> {
  const { output, global, clock } = context;
  const { submissions, going, stop, options } = run;
  const open = describeOpen(submissions);
  const doubt = open === null ? "" : `; ${open}`;
  output.note("interrupted: cancelling (interrupt again to leave at once)");
  const { http } = service;
  const limit = deadline(clock, CANCEL_TIMEOUT_MS);
  const unlimited = new AbortController().signal;
  const made: Batch[] = [...submissions.known.values()].filter(({ id }) => !going.includes(id));
  try {
    const queue = new PQueue({ concurrency: CANCELS_AT_ONCE });
    const cancel = async (id: string) => {
      const asked = await cancelBatch(http, id, service.stopsWithCommand ? unlimited : limit.signal);
      // A service elsewhere waits for what has left by itself.
      if (asked.isDone || !service.stopsWithCommand) return asked;
      output.note(describeCancel(asked));
      return untilCancelled(asked, service, { clock, signal: unlimited });
    };
    for (const batch of await queue.addAll(going.map((id) => () => cancel(id)))) {
      output.note(describeCancel(batch));
      made.push(batch);
    }
    await saveMade({ ...context, signal: unlimited }, service, options);
    const advice = open === null ? options.anew : AGAIN;
    return new ImgbatchError(stop.code, `Interrupted; cancelled ${going.join(", ")}${doubt}.`, { advice });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const isUnderWay = error instanceof ImgbatchError && error.code === "JOB_NOT_ENDED";
    const how = isUnderWay ? "Interrupted; the cancellation goes on" : "Interrupted, but not cancelled";
    const message = `${how}: ${why}${open === null ? "" : ` And ${open}.`}`;
    const left = going.filter((id) => !made.some((batch) => batch.id === id));
    const again = open === null ? "" : `; then ${AGAIN}`;
    return new ImgbatchError(stop.code, message, {
      advice: `${nextCommand(global, "cancel", ...left)}${again}`,
    });
  } finally {
    limit.stop();
  }
}
