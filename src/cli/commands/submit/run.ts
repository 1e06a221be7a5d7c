import type { ProviderIdentity } from "../../../contract/data-directory.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { costText } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { withRunLock } from "../../../runs/directory/lock.ts";
import { readRunState, submittedBatches } from "../../../runs/directory/run-state.ts";
import { chooseModel, requireReferencesFit, usualReferences } from "../../../runs/plan/choose-model.ts";
import { type Plan, planRun } from "../../../runs/plan/plan.ts";
import { type PromptItem, readPromptFiles } from "../../../runs/plan/prompt-files.ts";
import { reportReplay, type StartedRun, type Submissions } from "../../../runs/send.ts";
import { leaveRun, type StartOptions, startRun } from "../../../runs/start.ts";
import type { CommandContext, CommandResult, RunCommand } from "../../command-line/command-context.ts";
import { stoppable } from "../../interruption/cancel-on-interrupt.ts";
import { timeLimit } from "../../interruption/time-limit.ts";
import { commandAgain, nextCommand } from "../../result/next-command.ts";
import { createBudget, imagesOf } from "../../runs/budget.ts";
import { describeFinished, finishRun } from "../../runs/finish-run.ts";
import { requireKnown, unknownRun } from "../../runs/require-images.ts";
import { chooseUpstream } from "../../runs/upstream.ts";
import type { UpstreamChoice } from "../../service/connection.ts";
import { type ConnectedService, withService } from "../../service/with-service.ts";
import { realtimeCommand } from "./batch-shape.ts";
import { withoutService } from "./detach.ts";
import { describeDryRun } from "./dry-run.ts";
import { readSubmitOptions, type SubmitOptions } from "./options.ts";

const ANEW =
  "run the same command again: it fetches the finished images, and says how to make the cancelled ones";

/**
 * `imgbatch submit`: submits, waits, downloads and verifies. Reports every fault of the input before it starts a
 * service.
 */
export const run: RunCommand = async (context) => {
  const options = readSubmitOptions(context);
  const { cwd } = context;
  const limit = timeLimit(context, options.timeoutMs);
  const { signal } = limit;
  try {
    const stdin = () => context.stdin(signal);
    const sources = context.arguments.map((name) => ({ name, cwd, stdin }));
    const kept = new Set<string>();
    const items = await readPromptFiles(sources, {
      kept,
      limits: options.limits,
      defaultCount: options.count,
      stdinFormat: options.stdinFormat,
      isStrict: options.isStrict,
      usualReferences: usualReferences(options.model),
      isBatchOf: (file) => `\`${realtimeCommand(context, file === "<stdin>" ? "-" : file)}\``,
    });
    if (kept.size > 0) context.output.note(keptNote([...kept]));
    const limited = { ...context, signal };
    const upstream = await chooseUpstream(context, options.dir);
    const here = await runHere(limited, options, items, upstream);
    if (here !== null) return here;
    return await withService(limited, { workers: !options.dryRun, images: true, upstream }, (service) =>
      stoppable(limited, service, { ...options, anew: ANEW }, (inner, submissions) =>
        submit(inner, options, items, { service, submissions }),
      ),
    );
  } finally {
    limit.stop();
  }
};

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
  const { global, cwd, clock, signal, output } = context;
  const needsService = options.isNew || options.explicitKey !== null || options.detach || options.dryRun;
  if (needsService || !(await hasEnded(dir))) return null;
  const { providersToExpect } = await import("../../service/connect.ts");
  const providers = await providersToExpect(global, { upstream }, cwd);
  return withRunLock(dir, { clock, signal }, async () => {
    const state = await readRunState(dir);
    const { request = null } = state ?? {};
    if (state === null || request === null) return null;
    const name = options.name ?? request.task_name;
    const plan = planOf({ ...options, name }, options.model ?? request.model, items, providers);
    const isSplitSo = state.updates !== undefined || plan.chunks.length === submittedBatches(state).length;
    if (plan.inputSha256 !== state.input_sha256 || !isSplitSo) return null;
    const { outcomeHere } = await import("../../../runs/recorded.ts");
    const outcome = await outcomeHere({ dir, state, plan, keepZip }, signal);
    if (outcome === null) return null;
    reportPlan(context, options, plan);
    const submitted = new Set(submittedBatches(state).map(({ id }) => id));
    for (const batch of outcome.batches.filter(({ id }) => submitted.has(id)))
      reportReplay({ reporter: output, clock }, batch, { round: 0 });
    for (const { batch_id, custom_id, status, error = null } of outcome.lines)
      output.event({ event: "item_ended", batch_id, custom_id, status, error });
    const earlier = new Set(outcome.batches.map(({ id }) => id));
    const updateStep = commandAgain(context.typed, "--update");
    const run = { state, replayed: true, earlier, shownDir, allowance, updateStep };
    return describeFinished(context, outcome, run);
  });
}

/** Whether a directory has a run of batches that was finished there. */
async function hasEnded(dir: string): Promise<boolean> {
  const state = await readRunState(dir);
  return state !== null && state.kind === undefined && state.finished_at !== null;
}

async function submit(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  { service, submissions }: { service: ConnectedService; submissions: Submissions },
): Promise<CommandResult> {
  const { signal, clock, output: reporter } = context;
  if (options.detach && service.kind === "own" && !options.dryRun) throw await withoutService(context);
  // The service's first model may be another one by now: a second payment for the same run.
  const earlier = options.isNew ? null : await readRunState(options.dir);
  const model = await chooseModel(service.http, options.model, signal, earlier?.request?.model);
  requireReferencesFit(items, model);
  // A run keeps its name, and so its idempotency keys.
  const defaultName = earlier?.request == null ? options.defaultName : earlier.request.task_name;
  const plan = planOf({ ...options, name: options.name ?? defaultName }, model.id, items, service.providers);
  const budget = createBudget(options, model, service, context);
  reportPlan(context, options, plan);
  const { dir, shownDir, keepZip, allowance, intervalMs, isUpdate, limits, names } = options;
  const keys = { explicit: options.explicitKey, isNew: options.isNew };
  const adviseUpdate = (images: number) => {
    const cost = budget.estimateImages(images);
    const again = commandAgain(context.typed, "--update");
    if (images === 0) return `${again} changes no image`;
    const price = cost === null || cost.isPlay ? "" : ` (about ${costText(cost, "limit")})`;
    return `${again} makes only ${counted(images, "image")}${price} and keeps the others`;
  };
  const work: StartOptions = {
    ...{ plan, dir, service, keys, clock, reporter, signal, submissions, approve: budget.consent },
    ...{ names, shownDir, limits, isUpdate, adviseUpdate },
  };
  const target = { argument: shownDir, run: earlier === null ? null : { dir, state: earlier } };
  if (options.dryRun || isUpdate) await requireKnown(target, service, context);
  if (options.dryRun) {
    const result = await describeDryRun(work, budget);
    return { ...result, next: "the same command without --dry-run" };
  }
  return withRunLock(dir, { clock, signal }, async () => {
    const started = await startRun(work);
    if (options.detach) {
      const begun = { argument: shownDir, run: { dir, state: started.state } };
      const unknown = await unknownRun(begun, started.batches, service, context.global);
      if (unknown !== null && !unknown.isWhole) throw unknown.error;
      if (started.batches.some(({ isDone }) => !isDone)) service.noteDrawings();
      await leaveRun(dir, started.state);
      return describeDetached(context, options, started);
    }
    const isPlain = !options.isNew && options.explicitKey === null;
    const updateStep = isPlain ? commandAgain(context.typed, "--update") : undefined;
    const ended = { ...started, dir, shownDir, keepZip, allowance, intervalMs, updateStep };
    return finishRun(context, service, ended);
  });
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
  providers: readonly ProviderIdentity[] = [],
): Plan {
  const { name, parentId, mimeType, metadata, limits } = options;
  const isReal = providers.some(({ type }) => type !== "procedural");
  return planRun({ model, name, parentId, mimeType, metadata, items, isReal }, limits);
}

function describeDetached(
  context: CommandContext,
  options: SubmitOptions,
  started: StartedRun,
): CommandResult {
  const { batches, replayed } = started;
  context.output.settle();
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      directory: options.shownDir,
      detached: true,
      replayed,
      batches: batches.map((batch) => batch.raw),
    },
    lines: batches.map((batch) => batch.id),
    next: nextCommand(context.global, "wait", options.shownDir),
  };
}
