import { resolve } from "node:path";
import { timeLimit } from "../../client/poll.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { counted } from "../../kernel/text.ts";
import { collectRun, type RunOutcome } from "../../runs/collect-run.ts";
import { readResults } from "../../runs/directory/results.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import {
  type Asked,
  chooseModels,
  pinnedQualities,
  type RunModels,
  usedModels,
} from "../../runs/plan/choose-model.ts";
import { openRetry, planRetry } from "../../runs/plan/retry.ts";
import { findBatch, isUnsentHere } from "../../runs/run-batches.ts";
import {
  askedIn,
  pendingIn,
  type Run,
  readAskedItems,
  type StartedRun,
  type Submissions,
  send,
} from "../../runs/send.ts";
import { requireSameOrigins } from "../../runs/start.ts";
import { createBudget, type HeldFor, UNKNOWN_HOLD } from "../budget.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import type { ConnectedService } from "../connect/connection.ts";
import { describeFinished, describeRun, finishRun, workInRun } from "../finish-run.ts";
import { orWithSuccessor } from "../model-check.ts";
import * as read from "../options.ts";
import { flagOption, positiveDurationOption } from "../options.ts";
import { notEnded } from "../output/batches.ts";
import { noRun, originsOf, rememberedUpstream, resolveTarget } from "../targets.ts";
import { readRunOptions, running, runOptions } from "./shared-options.ts";
import { describeDetached, withoutService } from "./submit.ts";

export const command: CommandDetails = {
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options: [
    {
      flags: "--include-refused",
      description:
        "also retry images that were refused because of their prompt (SAFETY_BLOCKED, INVALID_ARGUMENT, a policy)",
    },
    {
      flags: "--include-lost",
      description:
        "also make images again that were made and paid, or may have been, but can no longer be fetched; this is paid again",
    },
    {
      flags: "--here",
      description:
        "go on with this service, which does not know batches of the run (its data are new, or it is another service or key); with --include-lost, only the missing images are made, and paid again if the other service still runs",
    },
    { flags: "-d, --detach", description: "print the batch ids and do not wait" },
    { flags: "--dry-run", description: "count the images and estimate the cost; submit nothing" },
    ...runOptions,
  ],
  examples: [
    "imgbatch retry prompts-images",
    "imgbatch retry prompts-images --max-cost 1",
    "imgbatch retry --include-lost --here prompts-images",
  ],
  exits: running,
  resumes: true,
  run,
};

const ANEW = "run the same command again: it sends the cancelled ones again";

/** `imgbatch retry`: makes the failed images of a run again, into the same directory. */
async function run(context: CommandContext): Promise<CommandResult> {
  const [shownDir = ""] = context.arguments;
  const runState = await readRunState(resolve(context.cwd, shownDir));
  if (runState?.kind === "realtime" && flagOption(context.options, "includeLost")) {
    const { retryLost } = await import("./generate-file.ts");
    const limit = timeLimit(context, positiveDurationOption(context.options, "timeout"));
    return retryLost({ ...context, signal: limit.signal }, shownDir, runState).finally(limit.stop);
  }
  const options = await readRetryOptions(context);
  return workInRun(context, { ...options, anew: ANEW }, (inner, parts) => retry(inner, options, parts));
}

async function retry(
  context: CommandContext,
  options: RetryCommandOptions,
  { service, submissions }: { service: ConnectedService; submissions: Submissions },
): Promise<CommandResult> {
  const { dir, shownDir, allowance, intervalMs, dryRun } = options;
  const { signal, clock, output: reporter } = context;
  if (options.detach && service.kind === "embedded" && !dryRun) throw await withoutService(context);
  const target = await resolveTarget(options.shownDir, context.cwd);
  const runState = target.run?.state;
  if (runState === undefined) throw new ImgbatchError("INTERNAL", "A retry has no run.");
  const items = await readAskedItems(dir);
  const models = await modelsOf(runState, items, service, signal);
  const used = [models.first, ...items.map(models.of)];
  const from = { origins: originsOf(used, service.providers), models: used.map(({ id }) => id) };
  requireSameOrigins(shownDir, runState, from);
  const work = {
    dir,
    state: runState,
    service,
    limits: { ...DEFAULT_LIMITS, ...models.limits },
    clock,
    reporter,
    signal,
    submissions,
    sharesReferences: models.first.options !== null,
    qualities: pinnedQualities(used),
  };
  // A run that kept its ZIPs keeps those of its retries too.
  const keepZip = (await readResults(dir)).some((line) =>
    line.files.some((file) => file.entry !== undefined),
  );
  // The run does not record the options that it was submitted with.
  const updateStep = `run the submit command of ${shellWord(shownDir)} again with --update`;
  const run = { dir, shownDir, allowance, intervalMs, keepZip, isForgiving: true, updateStep };
  const finish = async (started: StartedRun) =>
    options.detach
      ? describeDetached(context, options, started)
      : finishRun(context, service, { ...started, ...run });
  const open = openRetry(runState, service);
  const budget = createBudget(options, models, service, context);
  const consentTo = (images: readonly Asked[], heldFor?: HeldFor) =>
    orWithSuccessor(context, () => budget.consent(images, [], heldFor), true);
  if (open !== null) {
    const images = askedIn(open, items);
    const isLimited = dryRun || options.maxCostMicroUsd !== undefined;
    const held = isLimited ? await pendingIn(runState, items, service, signal) : [];
    if (dryRun) return describeDry(options, models, budget, { images, held, batches: 0, refused: 0 });
    // What is pending was agreed to before. A limit that is typed now holds for it, too.
    if (isLimited) budget.approve(images, held, UNKNOWN_HOLD);
    const consentOf = await consentTo(images, UNKNOWN_HOLD);
    if (!options.detach || images.length > 0)
      reporter.note("an earlier retry is not finished: continuing it");
    const started = await send({ ...work, consentOf });
    // Nobody has waited for a retry that was left to the service: once it has ended, this is the next one.
    const isOver = images.length === 0 && started.batches.every(({ isDone }) => isDone);
    if (!options.detach || !isOver) return finish(started);
  }
  const outcome = await collectEnded(work, keepZip);
  const include = { refused: options.withRefused, lost: options.withLost };
  const plan = await planRetry(work, outcome.lines, include);
  const ended = { outcome, state: runState, replayed: null, shownDir, allowance };
  // Nothing is made unasked when another service may have made the missing images.
  if (plan.unknownHere > 0 && !options.isHere) {
    reporter.note("nothing was sent");
    return describeRun(context, ended);
  }
  const images = askedIn(plan.added, items);
  if (dryRun) {
    const counts = { images, batches: plan.added.length, refused: plan.refused };
    return describeDry(options, models, budget, counts);
  }
  if (images.length === 0) {
    for (const line of nothingNotes(plan)) reporter.note(line);
    return describeFinished(context, { ...ended, updateStep });
  }
  if (plan.refused > 0) reporter.note(refusedNote(plan.refused));
  if (plan.missing > 0) reporter.note(missingNote(plan.missing));
  if (plan.undecided > 0) reporter.note(undecidedNote(plan.undecided));
  if (plan.unknownHere > 0 && options.withLost) reporter.note(paidAgainNote(plan.unknownHere));
  const consentOf = await consentTo(images);
  return finish(await send({ ...work, consentOf }, { added: plan.added }));
}

async function modelsOf(
  { request }: RunState,
  items: readonly Asked[],
  service: ConnectedService,
  signal: AbortSignal,
): Promise<RunModels> {
  const earlier = request?.model ?? null;
  const qualities = request?.default_qualities;
  if (earlier !== null) return chooseModels(service.http, items, { named: null, earlier, qualities }, signal);
  const message =
    "This directory was made by `download` and does not have the request of its images. Submit the prompts again.";
  throw new ImgbatchError("USAGE", message);
}

/** Reads the outcome of the run from the service. Throws `BATCH_IMAGE_NOT_READY` if a batch has not ended. */
async function collectEnded(work: Run, keepZip: boolean): Promise<RunOutcome> {
  const { state: runState, service, signal } = work;
  const batches = [];
  for (const entry of runState.batches) {
    const { id } = entry;
    if (id === null && !isUnsentHere(entry, service)) continue;
    if (id === null)
      throw new ImgbatchError(
        "SUBMISSION_UNKNOWN",
        "The submission was not finished: run the submit command again.",
      );
    const batch = await findBatch(service.http, entry, id, signal);
    if (!batch.isDone) throw notEnded(batch);
    batches.push(batch);
  }
  return collectRun({ ...work, batches, keepZip, isForgiving: true });
}

function refusedNote(count: number): string {
  const are = count === 1 ? "1 image was" : `${count} images were`;
  return `${are} refused because of the prompt and left out (--include-refused sends such images again)`;
}

function missingNote(count: number): string {
  const have = count === 1 ? "1 image is missing here but has" : `${count} images are missing here but have`;
  return `${have} not failed: left out`;
}

function undecidedNote(count: number): string {
  const have = count === 1 ? "1 image has" : `${count} images have`;
  return `${have} no known outcome and may be paid: left out (--include-lost makes such images again)`;
}

function paidAgainNote(count: number): string {
  return `${counted(count, "image")} of batches that are not known here: paid again if the other service still runs`;
}

function nothingNotes({
  refused,
  unknown,
  missing,
  undecided,
}: Awaited<ReturnType<typeof planRetry>>): string[] {
  return [
    ...(refused > 0 ? [refusedNote(refused)] : []),
    ...(unknown > 0 ? [`the prompts of ${unknown} failed images are not in this directory`] : []),
    ...(missing > 0 ? [missingNote(missing)] : []),
    ...(undecided > 0 ? [undecidedNote(undecided)] : []),
    "nothing to retry",
  ];
}

function describeDry(
  options: RetryCommandOptions,
  models: RunModels,
  budget: ReturnType<typeof createBudget>,
  count: { images: readonly Asked[]; held?: readonly Asked[]; batches: number; refused: number },
): CommandResult {
  const { held = [], batches, refused } = count;
  budget.approve(count.images, held, count.held === undefined ? undefined : UNKNOWN_HOLD);
  const images = [...count.images, ...held];
  return {
    json: {
      dry_run: true,
      directory: options.shownDir,
      model: models.first.id,
      image_count: images.length,
      batch_count: batches,
      refused_count: refused,
      ...budget.facts(images),
    },
    lines: [
      `${counted(images.length, "image")} to make again with ${usedModels(models, images)}`,
      ...(refused === 0 ? [] : [refusedNote(refused)]),
      ...budget.estimateLines(images),
    ],
    next: images.length === 0 ? null : budget.afterDryRun(images),
  };
}

type RetryCommandOptions = Awaited<ReturnType<typeof readRetryOptions>>;

/** Throws `USAGE` for the first wrong option, and for an id instead of a directory. */
async function readRetryOptions(context: CommandContext) {
  const { options, cwd } = context;
  const shownDir = context.arguments[0] ?? "";
  const target = await resolveTarget(shownDir, cwd);
  const { run } = target;
  if (run === null) throw noRun(shownDir, cwd, "a service returns only the beginning of each prompt");
  return {
    dir: resolve(cwd, shownDir),
    shownDir,
    needs: rememberedUpstream([target]),
    withRefused: read.flagOption(options, "includeRefused"),
    withLost: read.flagOption(options, "includeLost"),
    isHere: read.flagOption(options, "here"),
    dryRun: read.flagOption(options, "dryRun"),
    detach: read.flagOption(options, "detach"),
    ...readRunOptions(options),
  };
}
