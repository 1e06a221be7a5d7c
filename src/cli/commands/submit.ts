import { ImgbatchError } from "../../contract/errors.ts";
import { EXIT_CODES } from "../../contract/exit-codes.ts";
import { DEFAULT_LIMITS } from "../../contract/limits.ts";
import { systemClock } from "../../kernel/clock.ts";
import { awaitBatches } from "../../run/await-run.ts";
import { type ChosenModel, chooseModel, requireReferencesFit } from "../../run/choose-model.ts";
import { collectRun } from "../../run/collect-run.ts";
import { type Plan, planRun } from "../../run/plan.ts";
import { readPromptFiles } from "../../run/prompts/prompt-files.ts";
import type { PromptItem } from "../../run/prompts/prompt-item.ts";
import { type StartedRun, startRun } from "../../run/start-run.ts";
import { createBudget, describeDryRun } from "../budget.ts";
import type { CommandContext, CommandResult, RunCommand } from "../command.ts";
import { describeRun } from "../describe-run.ts";
import { readReportFlags, writeRunReports } from "../run-reports.ts";
import { readSubmitOptions, type SubmitOptions } from "../submit-options.ts";
import { type ConnectedService, explainStop, timeLimit, withService } from "../with-service.ts";

/** `imgbatch submit`: the whole job. Everything that can be wrong with the input is said before a service is needed. */
export const run: RunCommand = async (context) => {
  const options = readSubmitOptions(context);
  const { cwd, readStdin } = context;
  const sources = context.arguments.map((name) => ({ name, cwd, readStdin }));
  const items = await readPromptFiles(sources, { limits: DEFAULT_LIMITS, defaultCount: options.count });
  const limit = timeLimit(context.signal, options.timeoutMs);
  try {
    return await withService(context, { workers: !options.dryRun }, (service) =>
      submit({ ...context, signal: limit.signal }, options, items, service),
    );
  } finally {
    limit.stop();
  }
};

async function submit(
  context: CommandContext,
  options: SubmitOptions,
  items: readonly PromptItem[],
  service: ConnectedService,
): Promise<CommandResult> {
  const { signal, output } = context;
  if (options.detach && service.kind === "own" && !options.dryRun) {
    const message =
      "--detach needs a service that outlives this command: start `imgbatch serve`, or set --base-url.";
    throw new ImgbatchError("USAGE", message, { param: "--detach" });
  }
  const model = await chooseModel(service.http, options.model, signal);
  requireReferencesFit(items, model);
  const plan = planOf(options, model, items);
  const budget = createBudget(options, model);
  const keys = { explicit: options.explicitKey, isNew: options.isNew };
  if (options.dryRun) return describeDryRun(plan, options, budget);

  const voice = output;
  let started: StartedRun | null = null;
  try {
    const { approve } = budget;
    started = await startRun({
      plan,
      dir: options.dir,
      service,
      keys,
      clock: systemClock,
      voice,
      signal,
      approve,
    });
    if (options.detach) return describeDetached(context, options, started);
    const { ledger, replayed } = started;
    const { intervalMs, dir, keepZip } = options;
    const clock = systemClock;
    const batches = await awaitBatches(started.batches, {
      service,
      clock,
      random: Math.random,
      intervalMs,
      signal,
      voice,
    });
    const outcome = await collectRun({ dir, ledger, batches, service, keepZip, clock, voice, signal });
    output.settle();
    await writeRunReports(context, {
      outcome,
      shownDir: options.shownDir,
      model: plan.request.model,
      name: plan.request.name,
      flags: readReportFlags(context),
    });
    return describeRun(context, {
      outcome,
      replayed,
      shownDir: options.shownDir,
      allowance: options.allowance,
    });
  } catch (error) {
    throw explainStop(error, service.kind, started?.batches.map((batch) => batch.id) ?? []);
  }
}

function planOf(options: SubmitOptions, model: ChosenModel, items: readonly PromptItem[]): Plan {
  const { name, parentId, mimeType, metadata } = options;
  return planRun({ model: model.id, name, parentId, mimeType, metadata, items }, DEFAULT_LIMITS);
}

function describeDetached(
  context: CommandContext,
  options: SubmitOptions,
  started: StartedRun,
): CommandResult {
  const { batches, replayed } = started;
  context.output.settle();
  context.output.note(`next: imgbatch wait ${options.shownDir}`);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      directory: options.shownDir,
      detached: true,
      replayed,
      batches: batches.map((batch) => batch.raw),
    },
    lines: batches.map((batch) => batch.id),
  };
}
