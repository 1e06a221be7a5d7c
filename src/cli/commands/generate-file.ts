import { join, resolve } from "node:path";
import { createRateLimiter } from "../../client/realtime.ts";
import { type ErrorCode, EXIT_CODES, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import type { Http } from "../../http/http.ts";
import { type Cost, costText, microsToNumber, playMoneyField, sumCosts } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import { Problems } from "../../prompts/problems.ts";
import { withRunLock } from "../../runs/directory/claim.ts";
import { damaged, readRunInput, requireUndamaged } from "../../runs/directory/input.ts";
import { INPUT_FILE } from "../../runs/directory/names.ts";
import { RESULTS_FILE, RETRY_FILE } from "../../runs/directory/results.ts";
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
import { type RealtimeOutcome, type RealtimeRunOptions, runRealtime } from "../../runs/realtime-run.ts";
import { itemsOf } from "../../runs/request.ts";
import type { ImageConsent } from "../../runs/send.ts";
import { stands } from "../../runs/standing.ts";
import { createBudget } from "../budget.ts";
import type { CommandContext, CommandResult } from "../command.ts";
import { askOnce, expectedLimits, withService } from "../connect/connect.ts";
import type { ConnectedService } from "../connect/connection.ts";
import {
  billNote,
  differsNote,
  failureLines,
  paidTwiceNote,
  unknownOutcomeNote,
  upstreamBill,
} from "../finish-run.ts";
import { stopReason } from "../interruption.ts";
import { flagOf, flagOption, usdOption } from "../options.ts";
import { type Judgement, judgeFailed } from "../output/batches.ts";
import { exitCodeOf, originLines } from "../output/finish.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { fetchAgain, SheetSoFar, writeRunReports } from "../output/reports.ts";
import { nextOfImages, remakeElsewhere } from "../output/run-steps.ts";
import { chooseUpstream, originsOf } from "../targets.ts";
import { paidRequestsNote } from "../terminal.ts";
import type { GenerateOptions } from "./generate-options.ts";
import { fieldFlags, readVariableRules, requireCount } from "./input-options.ts";
import { requireDirectory } from "./submit-options.ts";

/** Makes the images of a prompt file in a run directory, one request for each image. */
export async function generateMany(
  context: CommandContext,
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
    ...(await readVariableRules(context)),
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
  return makeRun(context, options, {
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

/** Makes the images of a run again that two requests may have paid for, and what else is missing in its directory. */
export async function retryLost(
  context: CommandContext,
  shownDir: string,
  runState: RunState,
): Promise<CommandResult> {
  const { options } = context;
  for (const name of ["dryRun", "detach", "interval", "unitCost", "allowFailures", "cancelOnInterrupt"])
    if (options[name] !== undefined) {
      const flag = flagOf(name);
      const message = `${flag}: ${shownDir} was made by \`imgbatch generate\`, which has no batches.`;
      throw new ImgbatchError("USAGE", message, { param: flag });
    }
  const plan = await readRealtimePlan(resolve(context.cwd, shownDir), runState);
  const inputImages = plan.images.reduce((most, image) => Math.max(most, image.references.length), 0);
  const withRefused = flagOption(options, "includeRefused");
  return makeRun(
    context,
    { maxCostMicroUsd: usdOption(options, "maxCost") },
    {
      shownDir,
      wish: { model: plan.settings.model, options: {}, inputImages },
      itemCount: plan.images.length,
      planFor: (_, origin) => ({ ...plan, settings: { ...plan.settings, origin } }),
      staysFailed: (line) => stands(line, "refused") && !withRefused,
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

interface WantedRun extends Pick<RealtimeRunOptions, "staysFailed"> {
  shownDir: string;
  wish: Wish;
  /** The number of prompts. */
  itemCount: number;
  /** Returns the limits of the service. Default: only what no service takes. */
  limitsOf?: (service: ConnectedService) => Promise<Limits>;
  planFor(model: ChosenRealtimeModel, origin: string | null, limits: Limits): RealtimePlan;
}

async function makeRun(
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
    const sheet = new SheetSoFar(context, { dir, shownDir });
    const run: RealtimeRunOptions = {
      plan,
      onSaved: (soFar) => sheet.show(soFar),
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
      approve: realtimeConsent(options, model, service, context),
    };
    // Without the lock, two commands in one directory would both pay for the missing images.
    const outcome = await withRunLock(dir, { clock, signal }, () => runRealtime(run)).finally(() =>
      sheet.end(),
    );
    reporter.settle();
    // `withService` replaces a borrowed service that ended, and runs this work again.
    if (outcome.stop?.code === "SERVICE_GONE") throw outcome.stop;
    if (!signal.aborted) {
      const made = { shownDir, remake: "generate", model: model.id, upstream: service.upstream } as const;
      const fetching = outcome.hasRetry ? remakeElsewhere(made) : fetchAgain(outcome, shownDir).retryCommand;
      const retryCommand = outcome.stop === null ? (fetching ?? null) : null;
      await writeRunReports(context, {
        outcome,
        shownDir,
        model: model.id,
        name: null,
        retryCommand,
        // What earlier commands of the run paid is not known. Drawings are always free.
        cost: model.isPlay ? { micros: 0, isPlay: true } : null,
      });
    }
    const { isPlay } = model;
    const sum = sumCosts(outcome.made.map((image) => ({ micros: model.costOf(image), isPlay })));
    const cost = sum && { ...sum, isPlay };
    // A failure has no price here, but its upstream may bill it.
    const costs = new Map<string, number>([
      ...outcome.made.map((image) => [image.customId, model.costOf(image) ?? 0] as const),
      ...outcome.failed.map(({ customId }) => [customId, 0] as const),
    ]);
    const paid = outcome.lines.flatMap((line) => {
      const micros = costs.get(line.custom_id);
      return micros === undefined ? [] : { ...line, cost: microsToNumber(micros) };
    });
    const bill = isPlay ? null : upstreamBill(paid);
    const made = { ...outcome, model: model.id, upstream: service.upstream, cost, bill };
    return describeMany(context, shownDir, made);
  });
}

/** `cost` is that of the images that were made now, and `bill` that of all that were asked for; null when not known. */
type EndedImages = RealtimeOutcome & { cost: Cost | null; bill: ReturnType<typeof upstreamBill> };

function describeMany(
  { output, global }: CommandContext,
  dir: string,
  outcome: EndedImages & { model: string; upstream: string | null },
): CommandResult {
  const { cost, bill, lines, stop, keptCount, hasRetry } = outcome;
  const success = lines.filter((line) => line.files.length > 0).length;
  const failures = lines.filter((line) => line.error !== undefined);
  const unknown = failures.filter((line) => stands(line, "unknown")).length;
  const counts = {
    total: lines.length,
    success,
    failed: failures.length,
    unknown,
    pending: lines.length - success - failures.length,
  };
  const said = [...failureLines(lines), ...paidTwiceNote(lines, dir), ...unknownOutcomeNote(lines)];
  for (const line of [...said, ...differsNote(lines, dir)]) output.note(line);
  const { exitCode, error } = judgeImages(outcome, counts);
  const failure = exitCode === EXIT_CODES.temporary.code ? outcome.failure : null;
  if (error !== null && stop !== null) {
    output.note(`error: ${error.message}`);
    for (const line of originLines(stop)) output.note(line);
  }
  const parts = [
    `${success} of ${lines.length} images on disk`,
    ...(keptCount > 0 ? [`${success - keptCount} of them made now`] : []),
    ...(counts.failed > unknown ? [`${counts.failed - unknown} failed`] : []),
    ...(unknown > 0 ? [`${unknown} unknown`] : []),
    ...(counts.pending > 0 ? [`${counts.pending} not requested yet`] : []),
    ...(cost === null || cost.isPlay ? [] : [`${costText(cost)} now`]),
  ];
  output.note(`${parts.join(", ")}${cost?.isPlay ? `; ${costText(cost)}` : ""}`);
  if (bill !== null) output.note(billNote(bill));
  return {
    exitCode,
    json: {
      directory: dir,
      counts,
      made_count: success - keptCount,
      cost: cost === null ? null : microsToNumber(cost.micros),
      ...playMoneyField(cost),
      upstream_cost: bill === null ? null : microsToNumber(bill.micros),
      ...(bill?.isAbout ? { upstream_cost_about: true } : {}),
      results: `${dir}/${RESULTS_FILE}`,
      retry: hasRetry ? `${dir}/${RETRY_FILE}` : null,
      items: lines,
      ...(error === null ? {} : { error }),
    },
    lines: [dir],
    next: nextOfImages(
      { ...outcome, shownDir: dir, remake: "generate" },
      { stop, failure, exitCode },
      global,
    ),
  };
}

interface Counts {
  total: number;
  success: number;
  failed: number;
  unknown: number;
}

/**
 * The reason that stopped the run decides the exit code. Without one, temporary failures get another code than final
 * ones.
 */
function judgeImages(outcome: EndedImages, counts: Counts): Judgement {
  const { stop, lines } = outcome;
  if (stop !== null) {
    const error = { code: stop.code, message: stopMessage(outcome, stop) };
    return { exitCode: exitCodeOf(stop), error };
  }
  if (counts.failed === 0) return { exitCode: EXIT_CODES.ok.code, error: null };
  const failed = judgeFailed(counts.success + counts.unknown === 0 ? "noImages" : "someFailed", counts);
  const codes = lines.flatMap((line) => line.error?.code ?? []) as ErrorCode[];
  const [first] = codes;
  if (first !== undefined && codes.every((code) => errorEntry(code).exit === "temporary")) {
    return {
      exitCode: EXIT_CODES.temporary.code,
      error: { code: first, message: failed.error?.message ?? "" },
    };
  }
  return failed;
}

function stopMessage({ abandonedCount, cost }: EndedImages, stop: ImgbatchError): string {
  const why = stopReason(stop);
  if (why === null) return stop.message;
  if (abandonedCount === 0) return `${why}; what had left was awaited.`;
  const bill = cost?.isPlay ? "" : " and may be billed";
  return `${why}; ${counted(abandonedCount, "request")} ${abandonedCount === 1 ? "was" : "were"} under way${bill}.`;
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
