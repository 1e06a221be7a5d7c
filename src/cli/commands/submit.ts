// One file, since each step of the command needs the plan: from the prompts to the batches, found or made, to the pictures here.

import { timeLimit } from "../../client/poll.ts";
import { loadConfig } from "../../config/load.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import type { ProviderIdentity } from "../../contract/data-directory.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { readEnvironment } from "../../environment.ts";
import { costText } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import type { Problems } from "../../prompts/problems.ts";
import { ownOrigin } from "../../providers/catalogue/catalogue.ts";
import { requireOwnFiles } from "../../runs/derived-files.ts";
import { checkDirectory, claimDirectory, withRunLock } from "../../runs/directory/claim.ts";
import { readResults } from "../../runs/directory/results.ts";
import { otherMaker } from "../../runs/directory/run-service.ts";
import { readRunState, submittedBatches } from "../../runs/directory/run-state.ts";
import type { RunBatch, RunState } from "../../runs/directory/run-state-schema.ts";
import { placeOf } from "../../runs/lock.ts";
import {
  type Asked,
  chooseModels,
  firstModel,
  pinnedQualities,
  type RunModels,
  usedModels,
} from "../../runs/plan/choose-model.ts";
import { assignIds, type Chunk, type Plan, planRun, type RunRequest } from "../../runs/plan/plan.ts";
import { type PromptItem, readPromptFiles, toPromptLine } from "../../runs/plan/prompt-files.ts";
import { isMadeAgain, planRetry } from "../../runs/plan/retry.ts";
import { fitItems, reportMisfits, settleItems } from "../../runs/plan/settle-items.ts";
import { adoptShapes, shapeItems } from "../../runs/plan/shape-items.ts";
import { changedError, describeChanges } from "../../runs/plan/update.ts";
import {
  askedIn,
  type ImageConsent,
  imagesIn,
  reportReplay,
  type StartedRun,
  type Submissions,
  send,
  unsentBatches,
} from "../../runs/send.ts";
import { type Allowance, isAllowed } from "../../runs/standing.ts";
import { chooseStart, leaveRun, type Start, type StartOptions, startRun } from "../../runs/start.ts";
import { createBudget, UNKNOWN_HOLD } from "../budget.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { askOnce, expectedLimits, serviceToExpect, withService } from "../connect/connect.ts";
import type { ConnectedService, UpstreamChoice } from "../connect/connection.ts";
import { serviceAt } from "../connect/running-service.ts";
import { configChoice } from "../connect/service-config.ts";
import { batchesOf, describeDetached, describeFinished, makeRun } from "../finish-run.ts";
import { stoppable } from "../interruption.ts";
import { readJudge } from "../judge.ts";
import { describeLocked, openLocks, type RunLocks, writeLocks } from "../locks.ts";
import { orWithSuccessor } from "../model-check.ts";
import { commandAgain, commandWith, type Flag, nextCommand } from "../output/next-step.ts";
import { chooseUpstream, originsOf, requireKnown, unknownRun } from "../targets.ts";
import { fieldFlags, loadReferences, readVariableRules, requireCount } from "./input-options.ts";
import { running } from "./shared-options.ts";
import { readSubmitOptions, type SubmitContext, submitOptions } from "./submit-options.ts";

export const command = defineCommand({
  arguments: [
    { name: "<file...>", description: "prompt files (.jsonl, .txt, .csv, .tsv), or - for standard input" },
  ],
  options: submitOptions,
  first: [
    ...(["upstream", "maxCostMicroUsd", "dryRun", "model", "output"] as const),
    ...(["aspect_ratio", "size", "count", "variables", "isUpdate"] as const),
  ],
  examples: [
    "imgbatch submit prompts.jsonl",
    "imgbatch submit prompts.jsonl --upstream google",
    "imgbatch submit prompts.csv --output out --max-cost 5",
    "imgbatch submit prompts.jsonl --update --dry-run",
    "cat prompts.jsonl | imgbatch submit - --json",
    "imgbatch submit prompts.jsonl && echo green || echo red",
  ],
  exits: running,
  resumes: true,
  run,
});

type SubmitOptions = ReturnType<typeof readSubmitOptions> & {
  limits: Limits;
  /** The lock files of its prompt files. Absent where there are none. */
  locks?: RunLocks;
};

const ANEW = "run the same command again: it says how to make the cancelled ones";

/**
 * `imgbatch submit`: submits, waits, downloads and verifies. Reports every fault of the input before it starts a
 * service.
 */
async function run(context: SubmitContext): Promise<CommandResult> {
  const typed = readSubmitOptions(context);
  const limits = typed.limitsFor(await limitsOfRun(context, typed.dir));
  requireCount(typed.count, limits);
  await readJudge(context);
  const options = { ...typed, limits };
  const { cwd } = context;
  const limit = timeLimit(context, options.timeoutMs);
  const { signal } = limit;
  try {
    const stdin = () => context.stdin(signal);
    const sources = context.arguments.map((name) => ({ name, cwd, stdin }));
    const kept = new Set<string>();
    const limited = { ...context, signal };
    const items = await readPromptFiles(sources, {
      kept,
      limits: options.limits,
      defaultCount: options.count,
      format: options.format,
      isStrict: options.isStrict,
      root: context.root,
      hidden: context.hidden,
      ...(await readVariableRules(context.options, context)),
      file: options.files.path,
      files: { format: options.files.format, model: typed.model ?? undefined },
      filesRoot: options.files.root,
      isUnmarked: options.files.isUnmarked,
      shared: await loadReferences(context.options.references, "--reference", cwd, limits),
      note: (remark) => context.output.note(remark),
      options: options.itemOptions,
      flags: fieldFlags(options.itemOptions, {
        output_count: { flag: "--count", value: context.options.count && typed.count },
        model: { flag: "--model", value: typed.model },
      }),
      findMore: (read, problems) => findMisfits(limited, options, read, problems),
    });
    if (kept.size > 0) context.output.note(keptNote([...kept]));
    const locks = await openLocks(limited, { ...options, typed: context.options }, items);
    if (!options.files.isForced) await requireOwnFiles(options.dir, items, locks?.isKnown);
    if (locks === null) return await runItems(limited, options, items);
    const result = await runLocked(limited, { ...options, locks });
    if (!options.dryRun && !options.detach) await writeLocks(limited, options, locks);
    return result;
  } finally {
    limit.stop();
  }
}

/** Makes only what the lock files lack. Where they lack nothing, nobody is asked. */
async function runLocked(
  context: CommandContext,
  options: SubmitOptions & { locks: RunLocks },
): Promise<CommandResult> {
  const { locks } = options;
  if (!locks.isWhole) return runItems(context, options, locks.items);
  const upstream = await chooseUpstream(context, options.dir).catch(() => null);
  const here = locks.items.length === 0 ? null : await runHere(context, options, locks.items, upstream);
  return here ?? describeLocked(context, options);
}

/** Makes the images of prompts, or finds them. */
async function runItems(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
): Promise<CommandResult> {
  const upstream = await chooseUpstream(context, options.dir);
  const isBegun = (await readRunState(options.dir)) !== null;
  const here = await runHere(context, options, items, upstream);
  if (here !== null) return here;
  const needs = { workers: !options.dryRun, images: true, upstream };
  const made = withService(context, needs, (service) =>
    stoppable(context, service, { ...options, anew: ANEW }, (inner, submissions) =>
      orWithSuccessor(
        inner,
        (successor) =>
          submitOrFind(inner, { ...options, model: successor ?? options.model }, items, {
            service,
            submissions,
          }),
        isBegun,
      ),
    ),
  );
  if (!options.isExpanded) return await made;
  return await made.catch(async (error) => {
    if (!isOutOfReach(error)) throw error;
    const earlier = options.isNew ? null : (await readRunState(options.dir))?.request?.model;
    const { firstModel: usual } = await serviceToExpect(context, upstream);
    const model = firstModel(items, options.model, earlier) ?? (await usual());
    context.output.note(model === null ? NOT_ASKED : NOT_CHECKED);
    return describeExpanded(context, items, model);
  });
}

/** What is wrong with the upstream is reported after what is wrong with the prompts. */
async function limitsOfRun(context: CommandContext, dir: string): Promise<Limits> {
  const upstream = await chooseUpstream(context, dir).catch(() => null);
  return expectedLimits(context, upstream);
}

/** Adds what the service does not take of prompts that have problems, if it can be asked. */
async function findMisfits(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  problems: Problems,
): Promise<void> {
  const upstream = await chooseUpstream(context, options.dir).catch(() => null);
  await askOnce(context, upstream, async (http, signal) => {
    const earlier = options.isNew ? null : await readRunState(options.dir);
    const wanted = { named: options.model, earlier: earlier?.request?.model };
    const models = await chooseModels(http, items, wanted, signal);
    reportMisfits(items, models, rulesOf(options, models), problems);
  });
}

function rulesOf(options: SubmitOptions, models: RunModels) {
  const { mimeType, itemOptions: shared } = options;
  return { mimeType, shared, limits: options.limitsFor({ ...options.limits, ...models.limits }) };
}

/** Returns the prompts as the lines of a prompt file without variables. `model`: that of the run, null while it is not known. */
function describeExpanded(
  { cwd }: CommandContext,
  items: readonly PromptItem[],
  model: string | null,
): CommandResult {
  const rows = assignIds(items, model).map((item) => toPromptLine(item, cwd));
  return {
    json: { prompts: rows },
    lines: rows.map((row) => JSON.stringify(row)),
  };
}

function isOutOfReach(error: unknown): boolean {
  if (!(error instanceof ImgbatchError)) return false;
  return error.code === "API_KEY_REQUIRED" || errorEntry(error.code).exit === "temporary";
}

const NOT_CHECKED = "the service was not asked: what the models take is not checked";
const NOT_ASKED =
  "the service was not asked for its first model: prompts that name it will have ids without its name; --model names it here";

const MOST_NAMES = 8;

function keptNote(names: readonly string[]): string {
  const shown = names.slice(0, MOST_NAMES).join(", ");
  return `other fields are kept as metadata: ${shown}${names.length > MOST_NAMES ? ", …" : ""}`;
}

/**
 * Verifies a run that is whole in its directory, and asks no service: neither a new one, nor one that cannot be reached,
 * changes anything about it. Null for any other run.
 */
async function runHere(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  upstream: UpstreamChoice | null,
): Promise<CommandResult | null> {
  const { dir, shownDir, keepZip, allowance } = options;
  const { clock, signal, output } = context;
  const needsService = options.isNew || options.explicitKey !== null || options.detach || options.dryRun;
  if (needsService || !(await hasEnded(dir))) return null;
  const { providers } = await serviceToExpect(context, upstream);
  return withRunLock(dir, { clock, signal }, async () => {
    const state = await readRunState(dir);
    if (state === null) return null;
    const isNamed = isReal(providers);
    if (isNamed && !isFrom(Object.values(state.request?.origins ?? {}), providers)) return null;
    const plan = await planBefore(options, items, state, { isReal: isNamed });
    if (plan === null) return null;
    const { outcomeHere } = await import("../../runs/recorded.ts");
    const outcome = await outcomeHere({ dir, state, plan, keepZip }, signal);
    if (outcome === null || (options.retries && outcome.lines.some(isMadeAgain))) return null;
    reportPlan(context, options, plan);
    const submitted = new Set(submittedBatches(state).map(({ id }) => id));
    for (const batch of outcome.batches.filter(({ id }) => submitted.has(id)))
      reportReplay({ reporter: output, clock }, batch, { round: 0 });
    for (const { batch_id = null, custom_id, status, error = null } of outcome.lines)
      output.event({ event: "item_ended", batch_id, custom_id, status, error });
    const updateStep = commandAgain(context.typed, submitOptions.isUpdate);
    return describeFinished(context, {
      outcome,
      state,
      replayed: true,
      shownDir,
      allowance,
      updateStep,
      locks: options.locks,
    });
  });
}

const isReal = (providers: readonly ProviderIdentity[] = []) =>
  providers.some(({ type }) => type !== "procedural");

/** Whether providers have all addresses of a run. Without any, its images are of a vendor's own address. */
function isFrom(origins: readonly string[], providers: readonly ProviderIdentity[]): boolean {
  const here = providers.map(ownOrigin);
  return origins.length === 0 ? here.includes(null) : origins.every((origin) => here.includes(origin));
}

/** Whether a directory has a run of batches that was finished there. */
async function hasEnded(dir: string): Promise<boolean> {
  const state = await readRunState(dir);
  return state !== null && state.kind === undefined && state.finished_at !== null;
}

type Parts = { service: ConnectedService; submissions: Submissions };

/** What the models take, or that they are offered, may have changed since an earlier command sent the same prompts. */
const OF_MODELS: readonly string[] = ["INVALID_INPUT", "BATCH_IMAGE_INVALID_MODEL"];

/**
 * Submits. Where the prompts do not pass the checks of today, or nobody agrees to pay for them, asks first for the batches of
 * the same prompts whose answers were lost, by their keys: what was made and paid is fetched.
 */
async function submitOrFind(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  parts: Parts,
): Promise<CommandResult> {
  try {
    return await submit(context, options, items, parts);
  } catch (error) {
    // Another service does not ask the person at this machine.
    const asks = parts.service.kind !== "remote";
    const mayBeMade =
      error instanceof ImgbatchError &&
      (OF_MODELS.includes(error.code) || (error.code === "COST_LIMIT" && asks));
    const isPlain = !options.isNew && !options.dryRun && !options.detach && options.explicitKey === null;
    const found = mayBeMade && isPlain ? await finishSubmitted(context, options, items, parts) : null;
    if (found === null) throw error;
    return found;
  }
}

/**
 * Finds the batches of a run by their keys, and finishes it: with a limit of money only as far as that allows. Null unless it
 * has the same prompts, lost answers, and all of its batches exist.
 */
async function finishSubmitted(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  { service, submissions }: Parts,
): Promise<CommandResult | null> {
  const { dir } = options;
  const { clock, signal, output: reporter } = context;
  // With a limit, nothing goes on before it is known what that costs.
  const isFindOnly = options.maxCostMicroUsd !== undefined;
  const result = await withRunLock(dir, { clock, signal }, async () => {
    const state = await readRunState(dir);
    if (state === null || unsentBatches(state, service).every(({ refused }) => refused)) return null;
    if ((await planBefore(options, items, state, { isReal: isReal(service.providers) })) === null)
      return null;
    const run = { dir, state, service, clock, reporter, signal, submissions, sharesReferences: true };
    const isWanted = ({ refused }: RunBatch) => !isFindOnly || refused !== true;
    // A batch that is not there is refused, since nothing is agreed to.
    const sending = send({ ...run, consentOf: () => 0 }, { isFindOnly, isWanted });
    const started = await sending.catch((error: unknown) => {
      signal.throwIfAborted();
      reporter.detail(`the earlier submission is not there: ${error instanceof Error ? error.message : ""}`);
      return null;
    });
    if (started === null || !isFindOnly)
      return started && makeBatches(context, service, options, async () => started);
    return unsentBatches(state, service).length === 0 ? "found" : null;
  });
  return result === "found" ? submit(context, options, items, { service, submissions }) : result;
}

/** Plans these prompts as an earlier command did, with the models and qualities of then; null if the run has others. */
async function planBefore(
  options: SubmitOptions,
  items: readonly PromptItem[],
  state: RunState,
  named: { isReal: boolean },
): Promise<Plan | null> {
  const { request } = state;
  if (request === null) return null;
  const name = options.name ?? request.task_name;
  const model = firstModel(items, options.model, request.model) ?? request.model;
  const { default_qualities: qualities = {}, origins = {} } = request;
  const qualityOf = (item: PromptItem) => qualities[item.model ?? model] ?? null;
  const shaped = await adoptShapes(options.dir, items, model, qualityOf);
  // Only the service knows which shapes the models take.
  if (shaped.open.size > 0) return null;
  const settled = settleItems(shaped.items, model, qualityOf);
  // Without an upstream, nothing else is named than what made it.
  const from = { origins, isReal: named.isReal || request.images === "real" };
  const planned = [false, true].map((shares) =>
    planOf({ ...options, name }, model, settled, { ...from, shares }),
  );
  const count = submittedBatches(state).length;
  const plan = planned.find(({ chunks }) => state.updates !== undefined || chunks.length === count);
  return plan?.inputSha256 === state.input_sha256 ? plan : null;
}

async function submit(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  { service, submissions }: Parts,
): Promise<CommandResult> {
  const { signal, clock, output: reporter } = context;
  if (options.detach && service.kind === "embedded" && !options.dryRun) throw await withoutService(context);
  // The service's first model may be another one by now: a second payment for the same run.
  const earlier = options.isNew ? null : await readRunState(options.dir);
  const { model: before, default_qualities: qualities } = earlier?.request ?? {};
  const wanted = { named: options.model, earlier: before, qualities };
  const models = await chooseModels(service.http, items, wanted, signal);
  const rules = rulesOf(options, models);
  const { limits } = rules;
  const shaping = { isStrict: options.isStrict, note: reporter.note };
  const shaped = await shapeItems(options.isNew ? null : options.dir, items, models, shaping);
  const settled = fitItems(shaped, models, rules);
  if (options.isExpanded) return describeExpanded(context, items, models.first.id);
  const defaultQualities = Object.fromEntries(
    [models.first, ...items.map(models.of)].flatMap(({ id, options }) =>
      options?.defaultQuality ? [[id, options.defaultQuality]] : [],
    ),
  );
  const { providers } = service;
  // The idempotency keys depend on the name, so a run keeps its name.
  const defaultName = earlier?.request == null ? options.defaultName : earlier.request.task_name;
  const named = { ...options, limits, name: options.name ?? defaultName };
  const shares = models.first.options !== null;
  const origins = originsOf([models.first, ...settled.map(models.of)], providers);
  const how = { isReal: isReal(providers), defaultQualities, origins, shares };
  const plan = planOf(named, models.first.id, settled, how);
  const budget = createBudget(options, models, service, context);
  reportPlan(context, options, plan);
  const { dir, shownDir, allowance, isUpdate, names } = options;
  const keys = { explicit: options.explicitKey, isNew: options.isNew };
  const work: StartOptions = {
    plan,
    dir,
    service,
    keys,
    clock,
    reporter,
    signal,
    submissions,
    names,
    shownDir,
    limits,
    sharesReferences: shares,
    retries: options.retries,
    qualities: pinnedQualities([models.first, ...settled.map(models.of)]),
  };
  const target = { argument: shownDir, run: earlier === null ? null : { dir, state: earlier } };
  if (options.dryRun || isUpdate) await requireKnown(target, service, context);
  if (options.dryRun) {
    const start = await chooseStart(work, checkDirectory);
    requireWanted(context, options, start, budget);
    return describeDryRun(work, start, budget, models, { ...options, showsKeys: context.global.verbose });
  }
  const begin = async () => {
    const start = await chooseStart(work, claimDirectory);
    requireWanted(context, options, start, budget);
    const { update, images, mayHold } = start;
    if (start.kind === "update" && update !== null && update.renamed.length > 0)
      reporter.note(describeChanges(update));
    // The person agreed to the pending images before. A `--max-cost` that is typed now limits these, too.
    const held = options.maxCostMicroUsd === undefined ? [] : await start.pending();
    const consentOf = await budget.consent(images, held, mayHold ? UNKNOWN_HOLD : undefined);
    return startRun(work, start, consentOf);
  };
  return withRunLock(dir, { clock, signal }, async () => {
    if (options.detach) {
      const started = await begin();
      const begun = { argument: shownDir, run: { dir, state: started.state } };
      const unknown = await unknownRun(begun, started.batches, service, context.global);
      if (unknown !== null && !unknown.isWhole) throw unknown.error;
      if (started.batches.some(({ isDone }) => !isDone)) service.noteDrawings();
      await leaveRun(dir, started.state);
      return describeDetached(context, options, started);
    }
    let advice: string | undefined;
    const isPlain = !options.isNew && options.explicitKey === null;
    const updateStep = isPlain ? commandAgain(context.typed, submitOptions.isUpdate) : undefined;
    const result = await makeBatches(context, service, { ...options, updateStep }, async () => {
      const started = await begin();
      const isEnded = started.batches.every(({ isDone }) => isDone);
      const mayRetry = options.retries && earlier !== null && earlier.finished_at !== null && isEnded;
      if (!mayRetry) return started;
      const again = await makeAgain({ ...work, state: started.state }, budget, allowance);
      advice = again?.advice;
      return { ...started, ...again?.started, replayed: started.replayed };
    });
    return advice === undefined ? result : { ...result, next: advice };
  });
}

/** Throws `DIRECTORY_CONFLICT` for a run of other prompts, unless these are to take their place, or a lock file wants all of them. */
function requireWanted(
  { typed }: CommandContext,
  { isUpdate, locks, shownDir }: SubmitOptions,
  { kind, update, changedImages: images, otherFlags }: Start,
  budget: ReturnType<typeof createBudget>,
): void {
  if (kind === "run" || update === null || isUpdate) return;
  const places = update.changed.map(({ fileLine, variant }) => placeOf(fileLine, variant?.values));
  const isLocked = locks?.wanted !== undefined && update.settings.length === 0;
  if (isLocked && places.every((place) => locks.wanted.has(place))) return;
  const cost = budget.estimate(images);
  const again = commandAgain(typed, submitOptions.isUpdate);
  const price = cost === null || cost.isPlay ? "" : ` (about ${costText(cost, "limit")})`;
  const makes =
    images.length === 0
      ? `to take the prompts as they are now, which makes no image: ${again}`
      : `to make only ${counted(images.length, "image")}${price} and keep the others: ${again}`;
  const before = commandWith(typed, otherFlags);
  throw changedError(shownDir, update, otherFlags, { update: makes, before });
}

/** Makes the images of a run in batches, which `send` asks for or finds. */
function makeBatches(
  context: CommandContext,
  service: ConnectedService,
  options: SubmitOptions & { updateStep?: string | undefined },
  send: () => Promise<StartedRun>,
): Promise<CommandResult> {
  const { dir, shownDir, keepZip, intervalMs, allowance, updateStep, locks } = options;
  const transport = batchesOf(context, service, { dir, shownDir, keepZip, intervalMs }, send);
  return makeRun(context, service, transport, { dir, shownDir, allowance, updateStep, locks });
}

/**
 * Makes images of a run again that had failed before this command: nobody has paid for them. Without the consent to pay now
 * they stay, and `advice` names the command that agrees. At a service of another maker, which may take money for them and find
 * no earlier batch, they stay as long as `allowance` covers them. Null when there are none, or another service may know more.
 */
async function makeAgain(
  work: StartOptions & { state: RunState },
  budget: ReturnType<typeof createBudget>,
  allowance: Allowance,
): Promise<{ started?: StartedRun; advice?: string | undefined } | null> {
  const { reporter } = work;
  const planned = await failedBefore(work);
  if (planned.length === 0) return null;
  const images = askedIn(planned, work.plan.items);
  const which = counted(images.length, "failed image");
  const isOurs = work.sharesReferences === true;
  const lines = await readResults(work.dir);
  const failed = lines.filter(({ error }) => error !== undefined).length;
  if (!isOurs && isAllowed({ failed, total: lines.length }, allowance)) {
    const remake = nextCommand({}, "retry", work.shownDir);
    reporter.note(`${which} left as before, within --allow-failures; ${remake} makes them again`);
    return {};
  }
  let consentOf: ImageConsent | null;
  try {
    consentOf = await budget.consent(images);
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "COST_LIMIT") throw error;
    reporter.note(`${which} left as before: ${error.message}`);
    return { advice: error.advice };
  }
  reporter.note(`making ${which} again (--no-retry leaves such images)`);
  return { started: await send({ ...work, consentOf }, { added: planned }) };
}

/** Plans the batches that make the failed images of an ended run again. */
async function failedBefore(work: StartOptions & { state: RunState }): Promise<RunBatch[]> {
  const { dir, state, service } = work;
  if (state.batches.some((entry) => otherMaker(entry, service) !== null)) return [];
  const failed = (await readResults(dir)).filter(isMadeAgain);
  const plan = await planRetry(work, failed, { refused: false, lost: false });
  return plan.added;
}

function reportPlan({ output }: CommandContext, { shownDir }: SubmitOptions, plan: Plan): void {
  output.event({
    event: "run_planned",
    directory: shownDir,
    model: plan.request.model,
    item_count: plan.items.length,
    image_count: imagesOf(plan.chunks),
    batch_count: plan.chunks.length,
  });
}

function planOf(
  options: SubmitOptions,
  model: string,
  items: readonly PromptItem[],
  { shares, ...how }: Pick<RunRequest, "defaultQualities" | "origins" | "isReal"> & { shares: boolean },
): Plan {
  const { name, parentId, mimeType, metadata, limits, flags } = options;
  const request = { model, name, parentId, mimeType, metadata, items, flags, ...how };
  return planRun(request, limits, shares);
}

function imagesOf(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.imageCount, 0);
}

/**
 * Returns the error of `--detach` where no service outlives the command. Its advice names the directory, and mentions a
 * service of this program that runs at the usual address on another one.
 */
export async function withoutService(context: CommandContext): Promise<ImgbatchError> {
  const { global, options, cwd } = context;
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const { server } = loadConfig(configChoice(context));
  const { upstream } = options;
  const words: (string | Flag)[] = upstream === undefined ? [] : [{ flag: "--upstream" }, upstream];
  const start = `start one in another terminal (${nextCommand(global, "serve", ...words)}) and run the same command again`;
  const isElsewhere = (await serviceAt(server, [])) !== null;
  const other = `the service on port ${server.port} has another data directory: name that one with --data`;
  const message = `--detach needs a service that outlives this command, and none runs on ${directory}.`;
  return new ImgbatchError("USAGE", message, {
    param: "--detach",
    advice: isElsewhere ? other : `${start}, or name a service with --base-url`,
  });
}

function failedAgain(images: readonly Asked[]): string[] {
  if (images.length === 0) return [];
  return [`${counted(images.length, "failed image")} made again (--no-retry leaves them)`];
}

function stillToMake(images: readonly Asked[]): string[] {
  if (images.length === 0) return [];
  return [
    `${counted(images.length, "image")} submitted before ${images.length === 1 ? "is" : "are"} still to be made and paid`,
  ];
}

/** Images whose price a dry run counts although an earlier command may have paid them: only the service can tell. */
function maybeMade(open: readonly RunBatch[]): string[] {
  if (open.length === 0) return [];
  const which = `${counted(imagesIn(open), "image")} may be made and paid already`;
  return [
    `${which}: the answer to their submission was lost. The run looks for them first, and pays none twice`,
  ];
}

/**
 * Describes the planned run, and submits nothing. Batches that the directory has already cost nothing. Throws the errors
 * that the run itself would throw before it sends anything.
 */
async function describeDryRun(
  work: StartOptions,
  start: Start,
  budget: ReturnType<typeof createBudget>,
  models: RunModels,
  { retries, showsKeys }: Pick<SubmitOptions, "retries"> & { showsKeys: boolean },
): Promise<CommandResult> {
  const { plan, shownDir } = work;
  const { state, update, images, open, unmadeImages } = start;
  const { chunks, items, request } = plan;
  const before = await start.pending();
  budget.approve(images, before, start.mayHold ? UNKNOWN_HOLD : undefined);
  const isEnded = before.length === 0 && start.kind === "run" && state.finished_at !== null;
  const again = retries && isEnded ? askedIn(await failedBefore({ ...work, state }), start.items) : [];
  const unpaid = [...images, ...before, ...again];
  const next = budget.afterDryRun(unpaid);
  const facts = {
    dry_run: true,
    directory: shownDir,
    model: request.model,
    item_count: items.length,
    image_count: update === null ? imagesOf(chunks) : images.length,
    ...(before.length > 0 && { pending_count: before.length }),
    ...(again.length > 0 && { failed_count: again.length }),
    ...budget.facts(unpaid),
  };
  if (update !== null) {
    const { kept, changed, added, removed } = update;
    const changes = {
      kept: kept.length,
      changed: changed.map(({ customId }) => customId),
      added: added.map(({ customId }) => customId),
      removed: removed.map(({ id }) => id),
    };
    const lines = [
      start.kind === "run" ? "the run was updated to these prompts" : describeChanges(update),
      `${counted(images.length, "image")} to make with ${usedModels(models, images)}`,
      ...(unmadeImages === 0
        ? []
        : [`${unmadeImages} of them are of prompts that are the same, and were not made yet`]),
      ...(open.length === 0 || start.kind === "run" || work.sharesReferences === true
        ? maybeMade(open)
        : [
            `${imagesIn(open)} of them may be made before their batches of the earlier submission are cancelled`,
          ]),
      ...stillToMake(before),
      ...failedAgain(again),
      ...budget.estimateLines(unpaid),
    ];
    return { json: { ...facts, changes }, lines, next };
  }
  const keys = submittedBatches(state).map((batch) => batch.idempotency_key);
  const isReused = ({ index }: Chunk) => state.batches[index]?.state === "created";
  const reusedCount = chunks.filter(isReused).length;
  const batches = chunks.map((chunk) => ({
    index: chunk.index,
    model: chunk.model,
    item_count: chunk.items.length,
    image_count: chunk.imageCount,
    idempotency_key: keys[chunk.index],
    replayed: isReused(chunk),
  }));
  const lines = [
    `${counted(items.length, "prompt")}, ${counted(imagesOf(chunks), "image")}, ${counted(chunks.length, "batch", "batches")} with ${usedModels(models, items)}`,
    ...(reusedCount === 0
      ? []
      : [`${counted(reusedCount, "batch", "batches")} submitted before: re-used, nothing is paid again`]),
    ...maybeMade(open),
    ...stillToMake(before),
    ...failedAgain(again),
    ...budget.estimateLines(unpaid),
    ...(showsKeys ? keys.map(String) : []),
  ];
  return { json: { ...facts, batches }, lines, next };
}
