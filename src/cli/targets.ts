import { existsSync, readdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import PQueue from "p-queue";
import type { Batch } from "../client/answers.ts";
import { getBatch } from "../client/batches.ts";
import type { ProviderIdentity } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { isTerminal } from "../contract/statuses.ts";
import type { Http } from "../http/http.ts";
import type { Clock } from "../kernel/clock.ts";
import { shellWord } from "../kernel/command-line.ts";
import { ownOrigin } from "../providers/catalogue/catalogue.ts";
import { recordInRunState } from "../runs/directory/claim.ts";
import { otherMaker, type RunService } from "../runs/directory/run-service.ts";
import { isUnsent, lastRound, RUN_STATE_FILE, readRunState } from "../runs/directory/run-state.ts";
import type { RunState } from "../runs/directory/run-state-schema.ts";
import type { ChosenModel } from "../runs/plan/choose-model.ts";
import { findBatch, isUnsentHere, unknownBatches } from "../runs/run-batches.ts";
import type { CommandContext, CommandResult, Output } from "./command.ts";
import type { ServiceNeeds, UpstreamChoice } from "./connect/connection.ts";
import { exitCodeOf } from "./output/finish.ts";
import { finishing, goingOnHere, nextCommand, OWNER_ADVICE, type Whereabouts } from "./output/next-step.ts";

/** The meaning of an `<id|dir>` argument. */
export interface Target {
  /** The argument as typed. */
  argument: string;
  ids: string[];
  /** The number of batches of the run without an id here: their submission was not finished. */
  unsent: number;
  /** The run in that directory; null for an id. */
  run: { dir: string; state: RunState } | null;
}

/** Reads an argument: a directory with a run state, else a batch id. Throws `USAGE` if it is neither, or has no batch. */
export async function resolveTarget(argument: string, cwd: string): Promise<Target> {
  const dir = resolve(cwd, argument);
  const runState = await readRunState(dir);
  if (runState?.kind === "realtime") {
    const message = `${argument} was made by \`imgbatch generate\`: it has no batch. Run that command again to continue.`;
    throw new ImgbatchError("USAGE", message);
  }
  if (runState !== null) {
    const ids = runState.batches.flatMap(({ id }) => (id === null ? [] : [id]));
    const unsent = runState.batches.filter(isUnsent).length;
    return { argument, ids, unsent, run: { dir, state: runState } };
  }
  if (isDirectory(dir)) throw noRun(argument, cwd);
  if (/[/\\\s]/.test(argument) || argument === "") {
    throw new ImgbatchError(
      "USAGE",
      `${JSON.stringify(argument)} is neither a batch id nor the directory of a run.`,
    );
  }
  if (argument.length > MOST_ID_CHARS)
    throw new ImgbatchError(
      "BATCH_IMAGE_NOT_FOUND",
      `There is no run directory ${argument}, and no batch of that id.`,
    );
  return { argument, ids: [argument], unsent: 0, run: null };
}

/** No service has longer ids, and no file system longer names. */
const MOST_ID_CHARS = 255;

const MOST_RUNS = 5;

/**
 * The error of an argument that is not the output directory of a run, with how to get one. `why`: why a command needs that
 * of a submission. Default: one of `download` does as well.
 */
export function noRun(argument: string, cwd: string, why: string | null = null): ImgbatchError {
  const isId = argument.startsWith("imgbatch_");
  const needs = why === null ? "" : ` (${why})`;
  const message = isDirectory(resolve(cwd, argument))
    ? `${argument} has no ${RUN_STATE_FILE}: it is not the output of a run.`
    : isId
      ? `This needs the output directory of the run, not the id ${JSON.stringify(argument)}${needs}.`
      : `There is no run directory ${argument}.`;
  const runs = runsIn(cwd).map(shellWord);
  const shown = [...runs.slice(0, MOST_RUNS), ...(runs.length > MOST_RUNS ? ["…"] : [])].join(", ");
  const here =
    runs.length > 0
      ? `name the output directory of a run, such as ${shown}`
      : `name the output directory of a run; ${nextCommand({}, "submit", "FILE")} makes one`;
  const advice =
    isId && why === null ? `${here}; ${nextCommand({}, "download", argument)} makes one of this batch` : here;
  return new ImgbatchError("USAGE", message, { param: "<dir>", advice });
}

/** The names of the output directories of runs. None in a directory that cannot be listed. */
function runsIn(dir: string): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && existsSync(join(dir, entry.name, RUN_STATE_FILE)))
      .map(({ name }) => name);
  } catch {
    return [];
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** Reads all arguments. A batch that two of them name counts once. */
export async function resolveTargets(context: CommandContext): Promise<Target[]> {
  const seen = new Set<string>();
  const targets: Target[] = [];
  for (const argument of context.arguments) {
    const target = await resolveTarget(argument, context.cwd);
    const ids = target.ids.filter((id) => !seen.has(id));
    for (const id of ids) seen.add(id);
    targets.push({ ...target, ids });
  }
  return targets;
}

/**
 * Throws `SUBMISSION_UNKNOWN` if this service may have made a batch of a run without an answer: the run cannot be judged as a
 * whole.
 */
export function requireSubmitted(targets: readonly Target[], service: RunService, where: Whereabouts): void {
  for (const target of targets) {
    const unknown = submissionUnknown(target, service, where);
    if (unknown !== null) throw unknown;
  }
}

/** The error for batches of a run whose ids are not known; null if all are. Such batches may exist and be billed. */
function submissionUnknown(
  { argument, run }: Target,
  service: RunService,
  where: Whereabouts,
): ImgbatchError | null {
  if (run === null) return null;
  const { batches } = run.state;
  const unsent = batches.filter((entry) => isUnsentHere(entry, service));
  if (unsent.length === 0) return null;
  const command = lastRound(run.state) > 0 ? "retry" : "submit";
  const numbers = unsent.map(({ index }) => index + 1);
  const which =
    batches.length === 1
      ? `The submission of ${argument} was not finished`
      : `The submission of ${argument} was not finished: ${numbers.length === 1 ? "batch" : "batches"} ${numbers.join(", ")} of ${batches.length} may exist without being known here`;
  const message = `${which}: run its ${command} command again.`;
  return new ImgbatchError("SUBMISSION_UNKNOWN", message, { advice: finishing(where, { argument, run }) });
}

/**
 * Adds the error of `submissionUnknown` to the result of a command that worked on the known batches of a target only.
 * Returns the result unchanged if all batches are known.
 */
export function withUnknown(
  target: Target,
  service: RunService,
  { output, global }: { output: Output; global: Whereabouts },
  result: CommandResult,
): CommandResult {
  const unknown = submissionUnknown(target, service, global);
  if (unknown === null) return result;
  const { code, message, advice } = unknown;
  output.warn(message);
  return {
    ...result,
    ...(advice === undefined ? {} : { next: advice }),
    exitCode: exitCodeOf(unknown),
    json: { ...(result.json as object), error: { code, message } },
  };
}

/**
 * Returns the batches of a target, by id, that this service and key have made. Throws `DIRECTORY_CONFLICT` if a run has none
 * of them.
 */
export function ownIds({ argument, ids, run }: Target, service: RunService): readonly string[] {
  if (run === null) return ids;
  const { state } = run;
  const others = new Map(state.batches.map((entry) => [entry.id, otherMaker(entry, service)]));
  const own = ids.filter((id) => others.get(id) === null);
  const [other] = others.values();
  if (own.length > 0 || other == null) return own;
  throw new ImgbatchError("DIRECTORY_CONFLICT", `No batch of ${argument} is known here: ${other}.`, {
    advice: OWNER_ADVICE,
  });
}

/** Records the state of the batches in the run states of the targets. */
export async function recordAll(
  targets: readonly Target[],
  batches: readonly Batch[],
  clock: Clock,
): Promise<void> {
  for (const { run: named } of targets) if (named !== null) await recordInRunState(named.dir, batches, clock);
}

/** Gets a batch. Throws `BATCH_IMAGE_NOT_FOUND` with the id in its message. */
export async function requireBatch(http: Http, id: string, signal: AbortSignal): Promise<Batch> {
  try {
    return (await getBatch(http, id, { signal })).batch;
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_NOT_FOUND") throw error;
    const { requestId, httpStatus } = error;
    const message = id.startsWith("imgbatch_")
      ? `There is no batch ${id} for this key.`
      : `There is no run directory ${id}, and no batch of that id.`;
    throw new ImgbatchError(error.code, message, { requestId, httpStatus });
  }
}

/**
 * Gets each batch of the targets, one after the other. An ended batch of a run whose record the service has deleted is
 * returned as the run state knows it.
 */
export async function requireBatches(
  http: Http,
  targets: readonly Pick<Target, "ids" | "run">[],
  signal: AbortSignal,
): Promise<Batch[]> {
  const batches: Batch[] = [];
  for (const { ids, run } of targets)
    for (const id of ids) {
      const entry = run?.state.batches.find((each) => each.id === id);
      batches.push(
        await (entry === undefined ? requireBatch(http, id, signal) : findBatch(http, entry, id, signal)),
      );
    }
  return batches;
}

/**
 * Throws `BATCH_IMAGE_OUTPUT_DELETED` if the service has deleted a batch or its images, and `BATCH_IMAGE_NOT_FOUND` if it
 * does not know a batch of a run, unless the directory of the run has all images.
 */
export async function requireImages(
  targets: readonly Target[],
  batches: readonly Batch[],
  service: RunService,
  where: Whereabouts,
): Promise<void> {
  for (const target of targets) {
    const unknown = await unknownRun(target, batches, service, where);
    if (unknown !== null && !unknown.isWhole) throw unknown.error;
    const { argument, ids, run } = target;
    const gone = batches.find(({ id, status }) => ids.includes(id) && status === "output_deleted");
    if (gone === undefined || (run !== null && (await isWhole(run.dir)))) continue;
    const advice = run === null ? undefined : toCheck(where, argument);
    throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${gone.id} were deleted.`, {
      advice,
    });
  }
}

const toCheck = (where: Whereabouts, argument: string) =>
  `to check the files that are here, and see how to make the others: ${nextCommand(where, "download", argument)}`;

/**
 * Returns why the service does not know a batch of a run, and whether all images are here; null if it knows all batches, or
 * makes all images of the others again.
 */
export async function unknownRun(
  { argument, run }: Pick<Target, "argument" | "run">,
  batches: readonly Batch[],
  service: RunService,
  where: Whereabouts,
): Promise<{ error: ImgbatchError; isWhole: boolean } | null> {
  if (run === null) return null;
  const unknown = unknownBatches(run.state, batches, service);
  const [reason] = unknown.values();
  if (reason === undefined) return null;
  const { code, message } = reason;
  const advice = code === "BATCH_IMAGE_NOT_FOUND" ? goingOnHere(where, argument) : toCheck(where, argument);
  const error = new ImgbatchError(code, message, { advice });
  if (await isWhole(run.dir)) return { error, isWhole: true };
  const known = run.state.batches.filter((entry) => !unknown.has(entry));
  const again = new Set(known.flatMap(({ images = [] }) => images));
  return again.size > 0 && (await isWhole(run.dir, again)) ? null : { error, isWhole: false };
}

/**
 * Throws `BATCH_IMAGE_NOT_FOUND` if a run has images that are missing here, and batches of another service or key that this
 * one does not know: nothing more is made here unasked.
 */
export async function requireKnown(
  target: Pick<Target, "argument" | "run">,
  service: RunService,
  { global, signal }: { global: Whereabouts; signal: AbortSignal },
): Promise<void> {
  const { run } = target;
  if (run === null) return;
  const batches: Batch[] = [];
  for (const entry of run.state.batches) {
    const { id } = entry;
    const isOther = otherMaker(entry, service) !== null;
    if (isOther && id !== null) batches.push(await findBatch(service.http, entry, id, signal));
  }
  const unknown = await unknownRun(target, batches, service, global);
  if (unknown !== null && !unknown.isWhole) throw unknown.error;
}

/** Few commands come this far, and reading the files of a run takes libraries that load slowly. */
async function isWhole(dir: string, again?: ReadonlySet<string>): Promise<boolean> {
  const { isWholeHere } = await import("../runs/recorded.ts");
  return isWholeHere(dir, again);
}

/**
 * Returns the upstream of `--upstream`, else the one that the run in the directory remembers, else null. Without a
 * directory (null) nothing is remembered. Throws `DIRECTORY_CONFLICT` if the run has another one, `USAGE` for a name that is
 * not known, and `CONSENT_REQUIRED` if only the directory names a program.
 */
export async function chooseUpstream(
  context: Pick<CommandContext, "cwd" | "global" | "options">,
  dir: string | null,
): Promise<UpstreamChoice | null> {
  const { upstream: named } = context.options;
  const state = dir === null ? null : await readRunState(dir);
  const remembered = state === null ? null : upstreamOf(state);
  if (named === undefined) {
    // A stranger may have made the directory, and the program beside it.
    if (remembered?.name === "command") throw namelessProgram(dir ?? "");
    return remembered;
  }
  // Few commands name one, and reading the configuration takes libraries that load slowly.
  const { upstreamName } = await import("../config/load.ts");
  const choice = { file: context.global.config, cwd: context.cwd };
  const typed = upstreamName(choice, named);
  const isAnother = ({ name }: UpstreamChoice) => {
    if (name === typed) return false;
    try {
      return upstreamName(choice, name) !== typed;
    } catch {
      return true;
    }
  };
  if (remembered !== null && isAnother(remembered)) {
    const message = `${dir} belongs to a run with the upstream ${remembered.name}, not ${typed}. Choose another directory with --output.`;
    throw new ImgbatchError("DIRECTORY_CONFLICT", message);
  }
  return { ...remembered, name: typed, isTyped: true };
}

function namelessProgram(dir: string): ImgbatchError {
  const message = `${dir} belongs to a run whose images a program of the working directory makes. Nothing was run.`;
  const advice = "if you trust that program, run the same command with --upstream command";
  return new ImgbatchError("CONSENT_REQUIRED", message, { advice });
}

/** Returns the `origins` of a run whose models these providers make: see `RunRequest`. */
export function originsOf(
  models: readonly Pick<ChosenModel, "id" | "provider">[],
  providers: readonly ProviderIdentity[] = [],
): Record<string, string> {
  const real = providers.filter(({ type }) => type !== "procedural");
  return Object.fromEntries(
    models.flatMap(({ id, provider }) => {
      const own = providers.find(({ name }) => name === provider) ?? real[0];
      const origin = own && ownOrigin(own);
      return origin ? [[id, origin]] : [];
    }),
  );
}

/**
 * Returns the upstream that the runs of the targets remember, for the needs of a command. Throws `DIRECTORY_CONFLICT` if they have
 * different ones: one service cannot have them all.
 */
export function rememberedUpstream(targets: readonly Target[]): Pick<ServiceNeeds, "upstream"> {
  const found = targets.flatMap(({ run }) => (run === null ? [] : (upstreamOf(run.state) ?? [])));
  const [first, ...others] = found;
  if (first === undefined) return {};
  const other = others.find(({ name }) => name !== first.name);
  if (other === undefined) return { upstream: first };
  const message = `These runs have different upstreams (${first.name} and ${other.name}).`;
  const advice = "run the command once for the runs of each upstream";
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

function upstreamOf({ upstream: name, batches }: RunState): UpstreamChoice | null {
  if (name === undefined) return null;
  const open = batches.flatMap(({ provider, status }) => (isTerminal(status ?? "") ? [] : (provider ?? [])));
  const besides = [...new Set(open)].filter((each) => each !== name);
  return { name, isTyped: false, ...(besides.length > 0 ? { besides } : {}) };
}

/**
 * Runs work for each batch, and continues when one fails. Throws the first error at the end; its details list the other
 * errors and the results.
 */
export async function forEachBatch<T>(
  ids: readonly string[],
  work: (id: string) => Promise<T>,
  describe: (result: T) => string,
  atOnce = 1,
): Promise<T[]> {
  const done: T[] = [];
  const errors: ImgbatchError[] = [];
  const queue = new PQueue({ concurrency: atOnce });
  const one = async (id: string) => {
    try {
      return [await work(id)];
    } catch (error) {
      const mayGoOn = error instanceof ImgbatchError && error.httpStatus >= 400 && error.httpStatus !== 401;
      if (!mayGoOn || ids.length === 1) {
        queue.clear();
        throw error;
      }
      errors.push(error);
      return [];
    }
  };
  done.push(...(await Promise.all(ids.map((id) => queue.add(() => one(id))))).flat());
  const [first] = errors;
  if (first === undefined) return done;
  const details = [...errors.slice(1).map((error) => error.message), ...done.map(describe)];
  throw new ImgbatchError(first.code, first.message, {
    param: first.param,
    requestId: first.requestId,
    httpStatus: first.httpStatus,
    cause: first,
    details,
  });
}
