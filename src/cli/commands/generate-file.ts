import { join, resolve } from "node:path";
import { createRateLimiter } from "../../client/realtime.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import type { Http } from "../../http/http.ts";
import { counted } from "../../kernel/text.ts";
import { Problems } from "../../prompts/problems.ts";
import { type DirectOptions, direct } from "../../runs/direct.ts";
import { withRunLock } from "../../runs/directory/claim.ts";
import { damaged, readRunInput, requireUndamaged } from "../../runs/directory/input.ts";
import { INPUT_FILE } from "../../runs/directory/names.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import {
  type Asked,
  announcedLimits,
  BATCHES_ONLY,
  type ChosenRealtimeModel,
  chooseRealtimeModel,
  realtimeProblems,
  type Wish,
} from "../../runs/plan/choose-model.ts";
import { planRealtimeRun, type RealtimePlan, realtimeImages } from "../../runs/plan/plan.ts";
import { type PromptItem, readPromptFiles } from "../../runs/plan/prompt-files.ts";
import { reportExcess } from "../../runs/plan/settle-items.ts";
import { itemsOf } from "../../runs/request.ts";
import type { ImageConsent } from "../../runs/send.ts";
import { stands } from "../../runs/standing.ts";
import { createBudget } from "../budget.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import { askOnce, expectedLimits, withService } from "../connect/connect.ts";
import type { ConnectedService } from "../connect/connection.ts";
import { makeRun } from "../finish-run.ts";
import { stopReason } from "../interruption.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { chooseUpstream, originsOf } from "../targets.ts";
import { paidRequestsNote } from "../terminal.ts";
import type { GenerateContext, GenerateOptions } from "./generate-options.ts";
import { fieldFlags, readVariableRules, requireCount, requireDirectory } from "./input-options.ts";

/** Makes the images of a prompt file in a run directory, one request for each image. */
export async function generateMany(
  context: GenerateContext,
  options: GenerateOptions,
  file: string,
): Promise<CommandResult> {
  const { cwd, stdin } = context;
  const shownDir = options.output ?? defaultRunDirectory(file);
  requireDirectory(resolve(cwd, shownDir), shownDir);
  const upstream = await chooseUpstream(context, resolve(cwd, shownDir)).catch(() => null);
  const limits = await expectedLimits(context, upstream);
  requireCount(options.count, limits);
  const withShared = (items: readonly PromptItem[]) =>
    items.map((item) => (item.references.length === 0 ? { ...item, references: options.images } : item));
  const wish: Wish = { model: options.model, options: options.options, inputImages: options.images.length };
  const limitsFor = (items: readonly PromptItem[], http: Http, signal: AbortSignal) =>
    announcedLimits(http, [...items, ...items.flatMap(({ references }) => references)], signal);
  const read = await readPromptFiles([{ name: file, cwd, stdin }], {
    limits,
    defaultCount: options.count,
    format: options.format,
    root: context.root,
    hidden: context.hidden,
    ...(await readVariableRules(context.options, context)),
    note: (remark) => context.output.note(remark),
    flags: fieldFlags(options.options, {
      output_count: { flag: "--count", value: context.options.count && options.count },
      reference_images: { flag: "--image", value: options.images[0] },
    }),
    findMore: (items, problems) =>
      askOnce(context, upstream, async (http, signal) => {
        const asked = withShared(items);
        const model = await chooseRealtimeModel(http, wish, signal);
        reportUnfit(asked, model, await limitsFor(asked, http, signal), problems);
      }),
  });
  const prompts = withShared(read);
  const { mimeType } = options;
  return makeImages(context, options, {
    shownDir,
    wish,
    itemCount: prompts.length,
    limitsOf: ({ http }) => limitsFor(prompts, http, context.signal),
    planFor: (model, origin, limits) => {
      const problems = new Problems();
      reportUnfit(prompts, model, limits, problems);
      problems.throwIfAny();
      return planRealtimeRun({ model: model.id, options: options.options, mimeType, origin }, prompts);
    },
  });
}

/** Adds what the lines ask for that real time, or the model, does not make. A field with a problem gets no second one. */
function reportUnfit(
  items: readonly PromptItem[],
  model: ChosenRealtimeModel,
  limits: Limits,
  problems: Problems,
): void {
  for (const item of items) {
    const { fileLine, model: named } = item;
    const report = (field: string, message: string) => {
      if (!problems.has(fileLine, field)) problems.add(fileLine, field, message);
    };
    reportExcess(item, limits, report);
    if (named !== undefined && named !== model.id) report("model", BATCHES_ONLY);
    for (const { field, message } of realtimeProblems(model, item)) report(field, message);
    const { maxInputImages: most } = model;
    const count = item.references.length;
    if (most !== null && count > most)
      report("reference_images", `${model.id} takes at most ${counted(most, "input image")}, not ${count}`);
  }
}

/**
 * Makes the images of a run without batches that are missing in its directory. Refused images, and images that two requests may have paid
 * for, are made only with their flags.
 */
export async function retryDirect(
  context: CommandContext,
  shownDir: string,
  runState: RunState,
  {
    withRefused,
    withLost,
    maxCostMicroUsd,
  }: { withRefused: boolean; withLost: boolean; maxCostMicroUsd: number | undefined },
): Promise<CommandResult> {
  const plan = await readRealtimePlan(resolve(context.cwd, shownDir), runState);
  const inputImages = plan.images.reduce((most, image) => Math.max(most, image.references.length), 0);
  return makeImages(
    context,
    { maxCostMicroUsd },
    {
      shownDir,
      wish: { model: plan.settings.model, options: {}, inputImages },
      itemCount: plan.images.length,
      planFor: (_, origin) => ({ ...plan, settings: { ...plan.settings, origin } }),
      staysFailed: (line) =>
        (stands(line, "refused") && !withRefused) || (stands(line, "lost", "unknown") && !withLost),
    },
  );
}

/** Returns the plan of the run that a directory holds. Throws `DIRECTORY_CONFLICT` when its files do not say it. */
async function readRealtimePlan(dir: string, runState: RunState): Promise<RealtimePlan> {
  const path = join(dir, INPUT_FILE);
  const { model, mime_type: mimeType = null, input_sha256: inputSha256 } = runState;
  const input = await readRunInput(dir);
  requireUndamaged(input);
  const ids = [...input.keys()];
  if (ids.length === 0) throw damaged(`${path} is missing`);
  if (model === undefined || inputSha256 === null) throw damaged(`${dir} does not tell the model of its run`);
  const items = await itemsOf(dir, input, ids);
  const images = realtimeImages(items.map((item, at) => [ids[at] ?? "", item]));
  const settings = { model, options: {}, mimeType };
  return { settings, items: null, images, inputSha256 };
}

type RunChoices = Pick<GenerateOptions, "maxCostMicroUsd"> &
  Partial<Pick<GenerateOptions, "unitCostMicroUsd" | "concurrency" | "rpm" | "retries">>;

const DEFAULT_CONCURRENCY = 4;

interface WantedRun extends Pick<DirectOptions, "staysFailed"> {
  shownDir: string;
  wish: Wish;
  /** The number of prompts. */
  itemCount: number;
  /** Returns the limits of the service. Default: only what no service takes. */
  limitsOf?: (service: ConnectedService) => Promise<Limits>;
  planFor(model: ChosenRealtimeModel, origin: string | null, limits: Limits): RealtimePlan;
}

async function makeImages(
  context: CommandContext,
  options: RunChoices,
  { shownDir, wish, itemCount, limitsOf, planFor, staysFailed }: WantedRun,
): Promise<CommandResult> {
  const { cwd, clock, output: reporter, signal } = context;
  const dir = resolve(cwd, shownDir);
  const rateLimiter = createRateLimiter(options.rpm, clock);
  const upstream = await chooseUpstream(context, dir);
  return withService(context, { workers: true, upstream }, async (service) => {
    const { concurrency, retries } = options;
    const model = await chooseRealtimeModel(service.http, wish, signal);
    const { [model.id]: origin = null } = originsOf([{ id: model.id, provider: null }], service.providers);
    const plan = planFor(model, origin, (await limitsOf?.(service)) ?? WIDEST_LIMITS);
    reporter.event({
      event: "run_planned",
      directory: shownDir,
      model: model.id,
      item_count: itemCount,
      image_count: plan.images.length,
      batch_count: 0,
    });
    const answers = new AbortController();
    // What is paid is awaited and kept. A service elsewhere keeps the answers for the same command.
    const isAwaited = () => service.kind !== "remote" && !model.isPlay && stopReason(signal.reason) !== null;
    const onStop = (underWay: number) => {
      const note = paidRequestsNote(underWay, "a second Ctrl-C");
      if (!isAwaited()) answers.abort(signal.reason);
      else if (note !== null) reporter.note(note);
    };
    const transport = direct({
      plan,
      onStop,
      answerSignal: answers.signal,
      ...(staysFailed && { staysFailed }),
      dir,
      service,
      concurrency: concurrency ?? DEFAULT_CONCURRENCY,
      clock,
      reporter,
      signal,
      awaitTurnToSend: rateLimiter,
      maxRetries: retries,
      costOf: model.costOf,
      isPlay: model.isPlay,
      approve: realtimeConsent(options, model, service, context),
    });
    // Without the lock, two commands in one directory would both pay for the missing images.
    return withRunLock(dir, { clock, signal }, () => makeRun(context, service, transport, { dir, shownDir }));
  });
}

/**
 * Returns the function that gets the consent for real-time images: see `createBudget`. It notes first
 * whether the images are drawings, and throws `USAGE` if there is a limit but no price.
 */
export function realtimeConsent(
  {
    maxCostMicroUsd,
    unitCostMicroUsd,
  }: Pick<GenerateOptions, "maxCostMicroUsd"> & Partial<Pick<GenerateOptions, "unitCostMicroUsd">>,
  model: ChosenRealtimeModel,
  service: Pick<ConnectedService, "kind" | "noteDrawings">,
  context: CommandContext,
): (images: readonly Asked[]) => Promise<ImageConsent | null> {
  const costOf = (image: Asked) => model.costOf(image) ?? unitCostMicroUsd ?? null;
  return async (images) => {
    if (images.length > 0) service.noteDrawings();
    if (maxCostMicroUsd !== undefined && images.some((image) => costOf(image) === null)) {
      const message = `--max-cost: the service does not publish the price of an image of ${model.id}: add --unit-cost.`;
      throw new ImgbatchError("USAGE", message, { param: "--unit-cost" });
    }
    const priceOf = (image: Asked) => {
      const micros = costOf(image);
      return micros === null ? null : { imageMicroUsd: micros, holdMicroUsd: micros };
    };
    const priced = { ...model, priceOf, options: null };
    const options = { maxCostMicroUsd, unitCostMicroUsd: undefined };
    return createBudget(options, { first: priced, of: () => priced }, service, context).consent(images);
  };
}
