import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { timeLimit } from "../../client/poll.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { MOST_SEED } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { canonicalJson, groupBy } from "../../kernel/json.ts";
import { counted } from "../../kernel/text.ts";
import { seedOf } from "../../prompts/options.ts";
import { Problems } from "../../prompts/problems.ts";
import { collectRun, type RunOutcome } from "../../runs/collect-run.ts";
import { keepReference, readRunInput, requireUndamaged } from "../../runs/directory/input.ts";
import { type ResultLine, readResults, readVersions } from "../../runs/directory/results.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import type { MadeAgain, RunBatch, RunState } from "../../runs/directory/run-state-schema.ts";
import {
  type Asked,
  chooseModels,
  pinnedQualities,
  type RunModels,
  usedModels,
} from "../../runs/plan/choose-model.ts";
import { readPromptFiles } from "../../runs/plan/prompt-files.ts";
import {
  isUntold,
  openRetry,
  planRemake,
  planRetry,
  recordTold,
  remakeFlags,
} from "../../runs/plan/retry.ts";
import { reportMisfits } from "../../runs/plan/settle-items.ts";
import { textOf } from "../../runs/plan/spool.ts";
import { itemsOf, settingsOf } from "../../runs/request.ts";
import {
  namedImages,
  type Review,
  type ReviewedLine,
  readReview,
  readReviewedLines,
  versionOf,
} from "../../runs/review.ts";
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
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import type { ConnectedService } from "../connect/connection.ts";
import {
  batchesOf,
  describeDetached,
  describeFinished,
  describeRun,
  makeRun,
  workInRun,
} from "../finish-run.ts";
import { readJudge } from "../judge.ts";
import { orWithSuccessor } from "../model-check.ts";
import * as option from "../options.ts";
import { notEnded } from "../output/batches.ts";
import { type Flag, nextCommand, remakeCommand, typedCommand, wordsWithout } from "../output/next-step.ts";
import { noRun, originsOf, rememberedUpstream, resolveTarget } from "../targets.ts";
import { dryRunOption, judgeOptions, modelOption, running, runOptions } from "./shared-options.ts";
import { withoutService } from "./submit.ts";

const options = {
  only: option.list({
    flags: "--only <ids>",
    description:
      "make other pictures of these images, however they stand, such as fox,'icon-*'; paid again; may be repeated",
  }),
  isRejected: option.flag({
    flags: "--rejected",
    description: "the same for pictures that `imgbatch review` wants again (with --only: those of these)",
  }),
  edit: option.optionalText({
    flags: "--edit [words]",
    description:
      "with --only or --rejected: change the picture that is there by these words; default: the words of its review",
  }),
  model: { ...modelOption, description: "with --only or --rejected: with this model" },
  seed: option.whole({
    flags: "--seed <n>",
    description: "with --only or --rejected: with this seed; each further image of a prompt adds 1",
    group: "picture",
    default: "a fresh one, where the model takes seeds",
    min: 0,
    max: MOST_SEED,
  }),
  withRefused: option.flag({
    flags: "--include-refused",
    description:
      "also retry images that were refused because of their prompt (SAFETY_BLOCKED, INVALID_ARGUMENT, a policy)",
  }),
  withLost: option.flag({
    flags: "--include-lost",
    description:
      "also make images again that were made and paid, or may have been, but can no longer be fetched; this is paid again",
  }),
  isHere: option.flag({
    flags: "--here",
    group: "service",
    description:
      "go on with this service, which does not know batches of the run (its data are new, or it is another service or key); with --include-lost, only the missing images are made, and paid again if the other service still runs",
  }),
  detach: option.flag({
    flags: "-d, --detach",
    description: "print the batch ids and do not wait",
    group: "waiting",
  }),
  dryRun: dryRunOption,
  ...judgeOptions,
  ...runOptions,
};
type Options = option.Values<typeof options>;

export const command = defineCommand({
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options,
  first: ["only", "isRejected", "edit", "withRefused", "withLost", "dryRun", "maxCostMicroUsd"],
  examples: [
    "imgbatch retry prompts-images",
    "imgbatch retry prompts-images --max-cost 1",
    "imgbatch retry prompts-images --only fox,'icon-*'",
    "imgbatch retry prompts-images --rejected --edit",
    "imgbatch retry --include-lost --here prompts-images",
  ],
  exits: running,
  resumes: true,
  run,
});

const ANEW = "run the same command again: it sends the cancelled ones again";

/** `imgbatch retry`: makes the failed images of a run again, into the same directory. */
async function run(context: CommandContext<Options>): Promise<CommandResult> {
  const [shownDir = ""] = context.arguments;
  await readJudge(context);
  const runState = await readRunState(resolve(context.cwd, shownDir));
  if (runState?.kind === "realtime") {
    refuseBatchOptions(context.options, shownDir);
    const { retryDirect } = await import("./generate-file.ts");
    const limit = timeLimit(context, context.options.timeoutMs);
    const limited = { ...context, signal: limit.signal };
    return retryDirect(limited, shownDir, runState, context.options).finally(limit.stop);
  }
  const options = await readRetryOptions(context);
  return workInRun(context, { ...options, anew: ANEW }, (inner, parts) => retry(inner, options, parts));
}

/** Throws `USAGE` for an option that is about batches, or about other pictures, for a run of `generate`. */
function refuseBatchOptions(options: Options, shownDir: string): void {
  const about = [
    ...(["dryRun", "detach", "intervalMs", "unitCostMicroUsd", "allowance", "cancelOnInterrupt"] as const),
    ...(["isHere", "only", "isRejected", "edit", "model", "seed"] as const),
  ];
  const param = option.firstTyped(command.options, options, about);
  if (param === undefined) return;
  const message = `${param}: ${shownDir} was made by \`imgbatch generate\`, which has no batches.`;
  throw new ImgbatchError("USAGE", message, { param });
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
  const { remake } = options;
  const run = {
    dir,
    shownDir,
    allowance,
    intervalMs,
    keepZip,
    isForgiving: true,
    updateStep,
    remakes: remake !== null,
  };
  const make = async (sending: () => Promise<StartedRun>) => {
    const transport = batchesOf(context, service, run, sending);
    if (options.detach) return describeDetached(context, options, await transport.send());
    const result = await makeRun(context, service, transport, run);
    if (remake !== null) await recordTold(dir, runState, clock.nowMs());
    return result;
  };
  const open = openRetry(runState, service);
  const budget = createBudget(options, models, service, context);
  const consentTo = (images: readonly Asked[], heldFor?: HeldFor) =>
    orWithSuccessor(context, () => budget.consent(images, [], heldFor), true);
  if (open !== null) {
    if (remake !== null) requireSameRemake(context, shownDir, remakeFlags(runState), remake.flags);
    const images = askedIn(open, items);
    const isLimited = dryRun || options.maxCostMicroUsd !== undefined;
    const held = isLimited ? await pendingIn(runState, items, service, signal) : [];
    if (dryRun) return describeDry(options, models, budget, { images, held, batches: 0, refused: 0 });
    // The person agreed to the pending images before. A `--max-cost` that is typed now limits these, too.
    if (isLimited) budget.approve(images, held, UNKNOWN_HOLD);
    const consentOf = await consentTo(images, UNKNOWN_HOLD);
    if (!options.detach || images.length > 0)
      reporter.note("an earlier retry is not finished: continuing it");
    const started = await send({ ...work, consentOf });
    // Nobody has waited for a retry that was left to the service: once it has ended, this is the next one.
    const isOver = images.length === 0 && started.batches.every(({ isDone }) => isDone);
    if (!options.detach || !isOver || remake !== null) return make(async () => started);
  }
  const before = remakeFlags(runState);
  const isSame = remake !== null && before !== null && canonicalJson(before) === canonicalJson(remake.flags);
  if (isSame && isUntold(runState, context.beganMs) && !dryRun) {
    reporter.note("the same command has just made these images: run it again for others");
    return make(() => send(work));
  }
  if (remake !== null) {
    // A finished run needs no repair before: that would undo what a person has changed in a picture.
    const isFinished = runState.finished_at !== null;
    const lines = isFinished ? await readResults(dir) : (await collectEnded(work, keepZip)).lines;
    const commandOf: ShownRun["commandOf"] = (name, ...words) =>
      nextCommand(context.global, name, shownDir, ...words);
    const wanted = await wantedImages({ ...work, commandOf }, lines, remake, models);
    if (remake.edit === null) await requireUnedited(context, dir, Object.keys(wanted.images), runState);
    const added = await planRemake(work, lines, wanted);
    const images = askedIn(added, items);
    await requireFitting(context, work, added, models);
    if (dryRun) {
      const counts = { images, batches: added.length, refused: 0 };
      return describeDry(options, models, budget, counts);
    }
    if (images.length > 0) {
      const consentOf = await consentTo(images);
      return make(() => send({ ...work, consentOf }, { added }));
    }
    reporter.note(`no picture of ${shownDir} is wanted again: \`${programName()} review\` decides that`);
    const outcome = await collectEnded(work, keepZip);
    const unchanged = { outcome, state: runState, replayed: null, shownDir, allowance };
    return describeFinished(context, { ...unchanged, updateStep });
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
  return make(() => send({ ...work, consentOf }, { added: plan.added }));
}

/** Throws `DIRECTORY_CONFLICT` if an earlier command is not finished, and this one is another. */
function requireSameRemake(
  { global: where }: CommandContext,
  shownDir: string,
  before: Readonly<Record<string, string>> | null,
  flags: Readonly<Record<string, string>>,
): void {
  if (before !== null && canonicalJson(before) === canonicalJson(flags)) return;
  const earlier = remakeCommand(where, shownDir, before ?? {});
  const message = `An earlier retry of ${shownDir} is not finished. Nothing was sent.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice: `go on with it first: ${earlier}` });
}

/**
 * Throws `DIRECTORY_CONFLICT` if a prompt was edited in its file since: a person would pay for what is not meant any more. Prompts
 * that flags or variables have made, and files that are not there, are not compared.
 */
async function requireUnedited(
  { cwd, stdin, root, hidden }: CommandContext,
  dir: string,
  ids: readonly string[],
  { request }: RunState,
): Promise<void> {
  const flags = request?.flags ?? {};
  if (flags["--prompt"] !== undefined || flags["--prompt-column"] !== undefined) return;
  const input = await readRunInput(dir);
  const lines = ids.flatMap((id) => input.get(id) ?? []).filter(({ source }) => source.values === undefined);
  for (const [name, own] of groupBy(lines, ({ source }) => source.file)) {
    if (name.startsWith("<") || !existsSync(resolve(cwd, name))) continue;
    const rules = { limits: WIDEST_LIMITS, defaultCount: 1, format: null, isStrict: false, root, hidden };
    const items = await readPromptFiles([{ name, cwd, stdin }], rules).catch(() => []);
    const byId = new Map(items.map((item) => [item.customId, item]));
    const byLine = new Map(items.map((item) => [item.fileLine.line, item]));
    for (const { prompt, source, custom_id: id } of own) {
      const now = source.id === undefined ? byLine.get(source.line) : byId.get(source.id);
      if (now === undefined || now.variant !== undefined || textOf(now.prompt) === prompt) continue;
      const message = `The prompt of ${id} was edited in ${name} since. Nothing was sent.`;
      const advice = `run the submit command of ${shellWord(name)} again with --update: it makes the images of edited prompts, and no others`;
      throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
    }
  }
}

interface ShownRun {
  dir: string;
  /** Writes a command about this run, for an advice. */
  commandOf: (name: string, ...words: (string | Flag)[]) => string;
}

/** Which pictures of a run are wanted again, and with what. */
type Remake = NonNullable<ReturnType<typeof remakeOptions>>;

/** Returns what images are asked for instead of what their prompts say. With `--edit`, their pictures are kept as references. */
async function wantedImages(
  { dir, reporter, commandOf }: Run & Pick<ShownRun, "commandOf">,
  results: readonly ResultLine[],
  { only, isRejected, edit, model, seed, flags }: Remake,
  models: RunModels,
): Promise<NonNullable<RunBatch["again"]>> {
  const [lines, review, input] = await Promise.all([
    readReviewedLines(dir),
    readReview(dir),
    readRunInput(dir),
  ]);
  requireUndamaged(input);
  if (model !== null && !models.isThere(model)) {
    const there = models.listed?.map(({ id }) => id).join(", ") || "none";
    const message = `There is no batch model ${JSON.stringify(model)}; there is ${there}.`;
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", message, { param: "--model" });
  }
  const named = only.length > 0 ? namedImages(lines, only, "--only") : lines.flatMap((line) => line.images);
  const isWanted = ({ id, version }: (typeof named)[number]) => {
    const { verdict, version: seen } = review.verdicts.get(id) ?? {};
    return !isRejected || (verdict === "again" && seen === version);
  };
  const chosen = named.filter((image) => isWanted(image) && input.has(image.id));
  const wordsOf = (id: string): string | null =>
    edit === true ? (review.verdicts.get(id)?.words ?? "").trim() : edit;
  const unused = chosen.filter(({ id, version }) => {
    const { verdict, words = "", version: seen } = review.verdicts.get(id) ?? {};
    return edit === null && verdict === "again" && seen === version && words.trim() !== "";
  });
  if (unused.length > 0) {
    const ids = unused.map(({ id }) => id).join(", ");
    reporter.note(`the words of the review about ${ids} are left out: only --edit sends them`);
  }
  const speechless = chosen.filter(({ id }) => wordsOf(id) === "").map(({ id }) => id);
  if (speechless.length > 0) {
    const [first = ""] = speechless;
    const message = `--edit: nothing says what should change in ${speechless.join(", ")}.`;
    const again = `${first}=what should change`;
    const advice = `write the words behind --edit, or in the review: ${commandOf("review", { flag: "--again" }, again)}`;
    throw new ImgbatchError("USAGE", message, { param: "--edit", advice });
  }
  const images: Record<string, MadeAgain> = {};
  for (const { id, version } of chosen) {
    const line = lines.find((each) => each.images.some((image) => image.id === id));
    const index = line?.images.findIndex((image) => image.id === id) ?? 0;
    const { options } = models.of({ model: model ?? input.get(id)?.model });
    const fresh = options?.seed === true ? { seed: randomInt(Math.min(options.maxSeed, MOST_SEED) + 1) } : {};
    const words = wordsOf(id);
    const picture =
      words === null
        ? null
        : await keepPicture({ dir, commandOf }, id, results, pictureOf(line, id, version, review));
    images[id] = {
      ...(model !== null && { model }),
      ...(seed === null ? fresh : { seed: seedOf(seed, index) }),
      ...(words !== null && picture !== null && { edit: words, picture }),
    };
  }
  return { flags, images };
}

/** Returns the picture of an image that is changed: the chosen one, if that is one of this image, else the one of now. */
function pictureOf(
  line: ReviewedLine | undefined,
  id: string,
  version: string | null,
  review: Review,
): string | null {
  const chosen = review.choices.get(line?.id ?? "")?.version;
  return line?.earlier.some((each) => each.id === id && each.version === chosen) ? (chosen ?? null) : version;
}

/** Keeps a picture of a run as a reference image of its own. Returns its hash. Throws `USAGE` if it is not here as a file. */
async function keepPicture(
  { dir, commandOf }: ShownRun,
  id: string,
  results: readonly ResultLine[],
  version: string | null,
): Promise<string> {
  const files = [...results, ...(await readVersions(dir))]
    .filter((line) => line.custom_id === id)
    .flatMap((line) => line.files);
  const file = files.find((each) => versionOf(each) === version);
  const sha256 = file === undefined || file.entry !== undefined ? null : await keepReference(dir, file.path);
  if (sha256 !== null) return sha256;
  throw new ImgbatchError("USAGE", `--edit: ${id} has no picture here that could be changed.`, {
    param: "--edit",
    advice:
      file === undefined || file.entry !== undefined
        ? "leave out --edit to make it from its prompt"
        : `fetch it again first: ${commandOf("download")}`,
  });
}

/** Throws `INVALID_INPUT` for what the models do not take of images that are made again. */
async function requireFitting(
  { typed }: Pick<CommandContext, "typed">,
  { dir, state, limits }: Run & { limits: Limits },
  added: readonly RunBatch[],
  models: RunModels,
): Promise<void> {
  const [problems, withoutSeed] = [new Problems(), new Problems()];
  const input = await readRunInput(dir);
  const { mimeType } = settingsOf(state);
  for (const { images = [], again } of added) {
    const asked = await itemsOf(dir, input, images, again?.images);
    reportMisfits(asked, models, { mimeType, limits }, problems);
    const unseeded = asked.map(({ seed: _, ...item }) => item);
    reportMisfits(unseeded, models, { mimeType, limits }, withoutSeed);
  }
  const words = wordsWithout(typed, command.options.seed);
  const isOfSeed = problems.count > 0 && withoutSeed.count === 0 && words.length < typed.length;
  const advice = isOfSeed ? `leave out --seed:\n${typedCommand(words)}` : undefined;
  problems.throwIfAny([], advice);
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

/** Returns which pictures are wanted again; null without `--only` and `--rejected`. Throws `USAGE` for a wrong option. */
function remakeOptions(options: Options) {
  const { only, isRejected, edit = null, model = null, seed = null } = options;
  const flags = {
    ...(only.length > 0 && { "--only": only.join(",") }),
    ...(isRejected && { "--rejected": "" }),
    ...(edit !== null && { "--edit": edit === true ? "" : edit }),
    ...(model !== null && { "--model": model }),
    ...(seed !== null && { "--seed": String(seed) }),
  };
  const usage = (param: string, message: string) =>
    new ImgbatchError("USAGE", `${param}: ${message}`, { param });
  if (only.length === 0 && !isRejected) {
    const [first] = Object.keys(flags);
    if (first === undefined) return null;
    throw usage(first, "say of which images: add --only ID,… or --rejected.");
  }
  if (only.some((each) => each.trim() === "")) throw usage("--only", "name images, such as fox,'icon-*'.");
  if (typeof edit === "string" && edit.trim() === "") throw usage("--edit", "say what should change.");
  return { only, isRejected, model, seed, edit, flags };
}

type RetryCommandOptions = Awaited<ReturnType<typeof readRetryOptions>>;

/** Throws `USAGE` for the first wrong option, and for an id instead of a directory. */
async function readRetryOptions({ options, arguments: [shownDir = ""], cwd }: CommandContext<Options>) {
  const target = await resolveTarget(shownDir, cwd);
  const { run } = target;
  if (run === null) throw noRun(shownDir, cwd, "a service returns only the beginning of each prompt");
  const { allowance = { count: 0 } } = options;
  return {
    ...options,
    allowance,
    dir: resolve(cwd, shownDir),
    shownDir,
    needs: rememberedUpstream([target]),
    remake: remakeOptions(options),
  };
}
