import { resolve } from "node:path";
import type { Batch } from "../../client/answers.ts";
import { endJobs, listItems } from "../../client/batches.ts";
import { listModelsAndLimits } from "../../client/models.ts";
import { JOB_PATIENCE_MS, timeLimit } from "../../client/poll.ts";
import { upstreamName } from "../../config/load.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { DEFAULT_LIMITS, type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { isRefusalCode } from "../../contract/statuses.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { counted } from "../../kernel/text.ts";
import { UPSTREAM_NAMES } from "../../providers/catalogue/catalogue.ts";
import { collectRun } from "../../runs/collect-run.ts";
import { readRunInput } from "../../runs/directory/input.ts";
import { readResults } from "../../runs/directory/results.ts";
import { retriedId, supersededIn } from "../../runs/directory/run-state.ts";
import type { RunBatch, RunState } from "../../runs/directory/run-state-schema.ts";
import { type Asked, chooseModels } from "../../runs/plan/choose-model.ts";
import { openRetry, planRetry } from "../../runs/plan/retry.ts";
import { fitItems } from "../../runs/plan/settle-items.ts";
import { itemsOf, settingsOf } from "../../runs/request.ts";
import { findBatch, isUnsentHere } from "../../runs/run-batches.ts";
import {
  askedIn,
  type ImageConsent,
  pendingIn,
  readAskedItems,
  type StartedRun,
  type Submissions,
  send,
} from "../../runs/send.ts";
import { stands } from "../../runs/standing.ts";
import { awaitBatches } from "../../runs/wait.ts";
import { createBudget, type HeldFor, UNKNOWN_HOLD } from "../budget.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import type { ConnectedService } from "../connect/connection.ts";
import { batchesOf, describeFinished, makeRun, workInRun } from "../finish-run.ts";
import { pollInterval } from "../interruption.ts";
import * as option from "../options.ts";
import { noRun, ownIds, rememberedUpstream, resolveTarget, unknownRun } from "../targets.ts";
import { dryRunOption, modelOption, running, runOptions } from "./shared-options.ts";

const options = {
  upstream: option.text({
    flags: "--upstream <name>",
    description: "the upstream that makes the rest; at a service: its name in the configuration there",
    choices: UPSTREAM_NAMES,
  }),
  model: {
    ...modelOption,
    description: "the model that makes the rest",
    default: "the same where that upstream has it, else its first",
  },
  afterMs: option.positiveDuration({
    flags: "--after <time>",
    description: "end only a job that is older than this, such as 6h",
  }),
  dryRun: {
    ...dryRunOption,
    description: "count the images and estimate the cost; end and submit nothing",
  },
  ...runOptions,
};
type Context = CommandContext<option.Values<typeof options>>;

export const command = defineCommand({
  arguments: [
    { name: "<dir>", description: "the output directory of a run whose images a vendor's job makes" },
  ],
  options,
  examples: [
    "imgbatch finish prompts-images --upstream google --max-cost 9",
    "imgbatch finish prompts-images --upstream google --after 6h --max-cost 9",
  ],
  exits: running,
  resumes: true,
  run,
});

const ANEW = "run the same command again: it makes the cancelled ones";
const UNDER_WAY =
  "--dry-run: the rest was asked for already. Run the command without it to go on; nothing is paid twice.";

/** A batch of the run, and its entry there. */
interface Known {
  entry: RunBatch;
  batch: Batch;
}

/** `imgbatch finish`: ends the vendor's jobs of a run, fetches what they made, and has another upstream make the rest. */
async function run(context: Context): Promise<CommandResult> {
  const options = await readFinishOptions(context);
  return workInRun(context, { ...options, anew: ANEW }, (inner, parts) => finish(inner, options, parts));
}

/** The facts that the steps share. */
interface Work {
  context: CommandContext;
  options: FinishOptions;
  service: ConnectedService;
  state: RunState;
  known: readonly Known[];
}

async function finish(
  context: CommandContext,
  options: FinishOptions,
  { service, submissions }: { service: ConnectedService; submissions: Submissions },
): Promise<CommandResult> {
  const { dir, shownDir, name, allowance, intervalMs, dryRun } = options;
  const { signal, clock, output: reporter } = context;
  const target = await resolveTarget(shownDir, context.cwd);
  const state = target.run?.state;
  if (state === undefined) throw new ImgbatchError("INTERNAL", "A run to finish has no directory.");
  ownIds(target, service);
  requireSubmitted(state, options, service);
  const known: Known[] = [];
  for (const entry of state.batches)
    if (entry.id !== null)
      known.push({ entry, batch: await findBatch(service.http, entry, entry.id, signal) });
  const batchesNow = () => known.map(({ batch }) => batch);
  const unknown = await unknownRun(target, batchesNow(), service, context.global);
  if (unknown !== null && !unknown.isWhole) throw unknown.error;
  const work: Work = { context, options, service, state, known };
  const keepZip = (await readResults(dir)).some(({ files }) =>
    files.some(({ entry }) => entry !== undefined),
  );
  const run = { dir, shownDir, state, service, clock, reporter, signal, keepZip, isForgiving: true };
  const sending = { ...run, submissions, limits: DEFAULT_LIMITS, instead: name, sharesReferences: true };
  const ended = { dir, shownDir, allowance };
  const make = (sending: () => Promise<StartedRun>) =>
    withJobs(makeRun(context, service, batchesOf(context, service, { ...run, intervalMs }, sending), ended));
  const open = known.filter(({ entry, batch }) => !batch.isDone && entry.provider !== name);
  let consentOf: ImageConsent | null | undefined;
  if (open.length > 0) {
    requireJobs(open, options, clock.nowMs());
    const images = await imagesToMake(work);
    const { budget } = await priced(work, images);
    // The end of the jobs frees what they hold in the budget of all upstreams.
    const held = open.reduce((sum, { batch }) => sum + (batch.holdMicroUsd ?? Number.POSITIVE_INFINITY), 0);
    const heldFor: HeldFor = (upstream) => (upstream === null ? held : 0);
    if (dryRun) return describeDry(options, images, budget, heldFor);
    consentOf = await budget.consent(images, [], heldFor);
    await endAll(work, open);
  }
  const withJobs = async (result: CommandResult | Promise<CommandResult>): Promise<CommandResult> => {
    const { json, ...rest } = await result;
    return { ...rest, json: { ...(json as object), ...describeJobs(work) } };
  };
  const begun = openRetry(state, service);
  if (begun !== null && dryRun) throw new ImgbatchError("USAGE", UNDER_WAY, { param: "--dry-run" });
  const isRunning = known.some(({ batch }) => !batch.isDone);
  if (isRunning || (begun !== null && begun.length > 0)) {
    const items = await readAskedItems(dir);
    const images = askedIn(begun ?? [], items);
    // The person agreed to the pending images before. A `--max-cost` that is typed now limits these, too.
    const pending =
      options.maxCostMicroUsd === undefined ? [] : await pendingIn(state, items, service, signal);
    if (pending.length > 0) (await priced(work, pending)).budget.approve(images, pending, UNKNOWN_HOLD);
    const consentTo = async () => (await priced(work, images)).budget.consent(images, [], UNKNOWN_HOLD);
    consentOf ??= images.length === 0 ? null : await consentTo();
    noteJobs(work);
    return make(() => send({ ...sending, consentOf: consentOf ?? null }));
  }
  const batches = batchesNow();
  const outcome = await collectRun({ ...run, batches });
  const isWhole = outcome.lines.every((line) => stands(line, "here"));
  if (!isWhole && !known.some(({ batch }) => batch.isInJobs)) throw notInJobs(options, batches);
  const again = isWhole ? sending : { ...sending, ...(await modelsOf(work)) };
  const plan = await planRetry(again, outcome.lines, { refused: false, lost: false });
  const images = askedIn(plan.added, await readAskedItems(dir));
  if (images.length === 0) {
    noteJobs(work);
    if (plan.refused > 0)
      reporter.note(`${counted(plan.refused, "image")} refused because of the prompt: left out`);
    reporter.note("nothing to do");
    return withJobs(describeFinished(context, { ...ended, state, replayed: null, outcome }));
  }
  const { budget } = await priced(work, images);
  if (dryRun) return describeDry(options, images, budget);
  consentOf ??= await budget.consent(images);
  // It is on disk before anything is asked for: which images the first upstream may bill, too.
  const agreed = consentOf;
  return make(async () => {
    const started = await send({ ...sending, consentOf: agreed }, { added: plan.added });
    noteJobs(work);
    return started;
  });
}

/** The configuration behind `--upstream` is that of the service: there, it may be any name. */
function ofService(context: CommandContext, { upstream }: ConnectedService): CommandContext {
  return { ...context, options: { ...context.options, upstream: upstream ?? undefined } };
}

/** Returns the models of the upstream that finishes the run as images name them, and what they cost. */
async function priced({ context, options, service }: Work, images: readonly Asked[]) {
  const wanted = { named: null, provider: options.name };
  const models = await chooseModels(service.http, images, wanted, context.signal);
  return { models, budget: createBudget(options, models, service, ofService(context, service)) };
}

/** Throws `SUBMISSION_UNKNOWN` while it is not known which batches the run has. */
function requireSubmitted(
  { batches }: RunState,
  { shownDir, name }: FinishOptions,
  service: ConnectedService,
): void {
  const unsent = batches.find((entry) => isUnsentHere(entry, service) && entry.provider !== name);
  if (unsent === undefined) return;
  const { provider, round } = unsent;
  const command = provider !== undefined ? `finish --upstream ${provider}` : round > 0 ? "retry" : "submit";
  const message = `The submission of ${shownDir} was not finished: a batch may exist without being known here.`;
  const advice = `run the ${command} command of ${shellWord(shownDir)} again: nothing is paid twice`;
  throw new ImgbatchError("SUBMISSION_UNKNOWN", message, { advice });
}

/** Throws if open batches have no jobs to end, are made by that upstream already, or are too young. */
function requireJobs(open: readonly Known[], options: FinishOptions, nowMs: number): void {
  const { shownDir, name, afterMs } = options;
  const batches = open.map(({ batch }) => batch);
  if (batches.some(({ provider }) => provider === name)) throw sameUpstream(options);
  if (batches.some(({ isInJobs }) => !isInJobs)) throw notInJobs(options, batches);
  const starts = batches.flatMap(({ jobs, createdAtMs }) =>
    jobs.length > 0 ? jobs.map((job) => job.createdAtMs) : (createdAtMs ?? []),
  );
  const ageMs = Math.max(0, nowMs - Math.min(...starts, nowMs));
  if (afterMs === undefined || ageMs >= afterMs) return;
  const message = `The oldest job of ${shownDir} is ${formatDuration(ageMs)} old: it is ended when it is ${formatDuration(afterMs)} old (--after). Nothing was ended.`;
  throw new ImgbatchError("JOB_NOT_ENDED", message, {
    advice: "run the same command again later, or without --after",
  });
}

function sameUpstream({ shownDir, name }: Pick<FinishOptions, "shownDir" | "name">): ImgbatchError {
  const message = `The images of ${shownDir} are made with ${name} already: name another upstream to finish it.`;
  return new ImgbatchError("USAGE", message, { param: "--upstream" });
}

function notInJobs({ shownDir }: FinishOptions, batches: readonly Batch[]): ImgbatchError {
  const { provider = null } = batches.find(({ isInJobs }) => !isInJobs) ?? {};
  const who = provider === null ? "" : ` by ${provider}`;
  const message = `The images of ${shownDir} are made${who} in real time, one request each: there is no vendor's job to end.`;
  const dir = shellWord(shownDir);
  return new ImgbatchError("BATCH_IMAGE_NOT_IN_JOBS", message, {
    advice: `${programName()} cancel ${dir} stops them; ${programName()} retry ${dir} makes failed images again`,
  });
}

/** Returns which model of the upstream that finishes the run makes an image, and the limits of its batches. Throws if it has none. */
async function modelsOf({
  context,
  options,
  service,
  state,
}: Work): Promise<{ modelOf: (asked: Asked) => string; limits: Limits }> {
  const { name, model } = options;
  const { models: listed, limits } = await listModelsAndLimits(service.http, context.signal, name).catch(
    (error) => {
      if (!(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_INVALID_QUERY") throw error;
      const there = error.message.replace(/^.*must be one of /, "");
      const message = `--upstream ${JSON.stringify(name)}: this service has ${there}.`;
      throw new ImgbatchError("USAGE", message, { param: "--upstream", cause: error });
    },
  );
  const ids = listed.map(({ id }) => id);
  const [first] = ids;
  const wrong = model !== undefined && !ids.includes(model);
  if (first === undefined || wrong) {
    const has = wrong
      ? `no model ${JSON.stringify(model)}; it has ${ids.join(", ") || "none"}`
      : "no model here";
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", `${name} has ${has}.`, { param: "--model" });
  }
  const usual = settingsOf(state).model;
  const modelOf = ({ model: asked = usual }: Asked) => model ?? (ids.includes(asked) ? asked : first);
  return { modelOf, limits: { ...DEFAULT_LIMITS, ...limits } };
}

/**
 * Returns what will have to be made at most, with the models that make it. Throws `INVALID_INPUT`, naming lines and fields,
 * if the other upstream cannot.
 */
async function imagesToMake(work: Work): Promise<Asked[]> {
  const { context, options, service, state, known } = work;
  const { modelOf } = await modelsOf(work);
  const toMake = new Map<string, boolean>();
  for (const { entry, batch } of known.toSorted((a, b) => a.entry.round - b.entry.round)) {
    const superseded = supersededIn(state, entry.round);
    const own = new Map(entry.images?.map((id) => [retriedId(id), id]));
    const items = batch.isUnknown ? [] : await listItems(service.http, batch.id, context.signal);
    for (const { customId, status, error } of items) {
      const id = own.get(customId) ?? customId;
      if (superseded.has(id) || toMake.get(id) === false) continue;
      toMake.set(id, status !== "success" && !(error !== null && isRefusalCode(error.code)));
    }
  }
  const ids = [...toMake].flatMap(([id, isMissing]) => (isMissing ? [id] : []));
  const prompts = await itemsOf(options.dir, await readRunInput(options.dir), ids);
  const images = prompts.map((item) => ({ ...item, model: modelOf(item) }));
  const { models } = await priced(work, images);
  const limits = { ...WIDEST_LIMITS, ...models.limits };
  fitItems(images, models, { mimeType: settingsOf(state).mimeType, limits });
  return images;
}

/**
 * Ends the jobs of open batches, and waits until their upstream has confirmed it: then they have ended, with what was made.
 * Throws `JOB_NOT_ENDED` if that takes too long.
 */
async function endAll({ context, options, service }: Work, open: readonly Known[]): Promise<void> {
  const { signal, clock, output: reporter } = context;
  for (const { batch } of open) {
    reporter.note(`asking ${batch.provider} to end the jobs of ${batch.id}`);
    await endJobs(service.http, batch.id, signal);
  }
  const limit = timeLimit({ signal, clock }, JOB_PATIENCE_MS);
  const intervalMs = pollInterval(options.intervalMs, service, reporter);
  const waiting = { service, clock, random: Math.random, intervalMs, signal: limit.signal, reporter };
  const before = open.map(({ batch }) => batch);
  try {
    const ended = new Map((await awaitBatches(before, waiting)).map((batch) => [batch.id, batch]));
    for (const each of open) each.batch = ended.get(each.batch.id) ?? each.batch;
  } catch (error) {
    if (signal.aborted || !(error instanceof ImgbatchError) || error.code !== "TIMEOUT") throw error;
    const who = [...new Set(open.map(({ batch }) => batch.provider))].join(" and ");
    const message = `${who} has not confirmed yet that the jobs of ${options.shownDir} have ended. Nothing was sent to ${options.name}.`;
    throw new ImgbatchError("JOB_NOT_ENDED", message, {
      advice: "run the same command again: it goes on, and nothing is paid twice",
    });
  } finally {
    limit.stop();
  }
}

/** The batches of the run whose jobs were ended, what they delivered, and what may still be billed. */
function jobsEnded({ known, state, options }: Work) {
  const jobs = known.filter(({ entry, batch }) => batch.isInJobs && entry.provider !== options.name);
  const again = state.batches.filter(({ provider }) => provider === options.name);
  return {
    who: [...new Set(jobs.flatMap(({ batch }) => batch.provider ?? []))].join(" and "),
    ids: jobs.map(({ batch }) => batch.id),
    delivered: jobs.reduce((sum, { batch }) => sum + batch.successCount, 0),
    billed: new Set(again.flatMap(({ may_be_billed = {} }) => Object.keys(may_be_billed))).size,
  };
}

function describeJobs(work: Work) {
  const { who, ids, delivered, billed } = jobsEnded(work);
  if (ids.length === 0) return {};
  const facts = { upstream: who, batches: ids, delivered_count: delivered, may_be_billed_count: billed };
  return { ended_jobs: facts };
}

function noteJobs(work: Work): void {
  const { who, ids, delivered, billed } = jobsEnded(work);
  if (ids.length === 0) return;
  const more = billed === 0 ? "" : `; it may still bill ${counted(billed, "image")} that it did not deliver`;
  work.context.output.note(`${who} has delivered ${counted(delivered, "image")}${more}`);
}

function describeDry(
  { shownDir, name }: FinishOptions,
  images: readonly Asked[],
  budget: ReturnType<typeof createBudget>,
  heldFor?: HeldFor,
): CommandResult {
  budget.approve(images, [], heldFor);
  return {
    json: {
      dry_run: true,
      directory: shownDir,
      upstream: name,
      image_count: images.length,
      ...budget.facts(images),
    },
    lines: [
      `at most ${counted(images.length, "image")} to make with ${name}`,
      ...budget.estimateLines(images),
    ],
  };
}

type FinishOptions = Awaited<ReturnType<typeof readFinishOptions>>;

/** Throws `USAGE` for the first wrong option, for what is no run, and for the upstream that the run has. */
async function readFinishOptions(context: Context) {
  const { options, cwd } = context;
  const shownDir = context.arguments[0] ?? "";
  const { upstream: named, allowance = { count: 0 } } = options;
  if (named === undefined || named === "") {
    const message = "--upstream: name the upstream that is to make the rest.";
    throw new ImgbatchError("USAGE", message, { param: "--upstream" });
  }
  const target = await resolveTarget(shownDir, cwd);
  if (target.run === null) throw noRun(shownDir, cwd, "it has the prompts");
  const { upstream } = rememberedUpstream([target]);
  const name = upstream == null ? named : upstreamName({ file: context.global.config, cwd }, named);
  const others = upstream == null ? [] : [upstream.name, ...(upstream.besides ?? [])];
  const shared = { shownDir, name };
  if (upstream?.name === name && upstream.besides === undefined) throw sameUpstream(shared);
  return {
    ...options,
    ...shared,
    allowance,
    dir: resolve(cwd, shownDir),
    needs:
      upstream == null
        ? {}
        : { upstream: { name, isTyped: false, besides: others.filter((each) => each !== name) } },
  };
}
