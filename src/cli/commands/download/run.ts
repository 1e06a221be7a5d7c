import { resolve } from "node:path";
import type { Batch } from "../../../client/batch.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { collectRun } from "../../../runs/collect-run.ts";
import { adoptDirectory } from "../../../runs/directory/claim.ts";
import { withRunLock } from "../../../runs/directory/lock.ts";
import { readRunState, standsFor } from "../../../runs/directory/run-state.ts";
import type { CommandContext, CommandResult, RunCommand } from "../../command-line/command-context.ts";
import {
  flagOption,
  pathOption,
  type TypedOptions,
  textOption,
  wholeOption,
} from "../../command-line/option-values.ts";
import { notEnded } from "../../result/judge-batches.ts";
import { nextCommand } from "../../result/next-command.ts";
import { describeRun } from "../../result/run-summary.ts";
import { requireBatches } from "../../runs/get-batches.ts";
import { fetchAgain, readReportFlags, writeRunReports } from "../../runs/reports.ts";
import { unknownRun } from "../../runs/require-images.ts";
import { requireSubmitted, resolveTarget, type Target } from "../../runs/targets.ts";
import { rememberedUpstream } from "../../runs/upstream.ts";
import { type ConnectedService, withService } from "../../service/with-service.ts";
import { downloadItem } from "./item.ts";
import { downloadZip } from "./zip.ts";

const MOST_IMAGES = 1_000_000;

/** `imgbatch download`: saves the images of ended batches as a directory or a ZIP, or one image. Never waits. */
export const run: RunCommand = async (context) => {
  const { options, cwd, signal } = context;
  const argument = context.arguments[0] ?? "";
  const output = pathOption(options, "output");
  const item = textOption(options, "item");
  const index = wholeOption(options, "index", { min: 0, max: MOST_IMAGES });
  const wantsZip = flagOption(options, "zip");
  if (item !== undefined && wantsZip) throw new ImgbatchError("USAGE", "--item and --zip: use one of them.");
  if (item === undefined && index !== undefined)
    throw new ImgbatchError("USAGE", "--index works only with --item.");

  const mayReplace = flagOption(options, "force");
  const isOneFile = item !== undefined || wantsZip;
  if (isOneFile) refuseReports(options);
  else if (mayReplace)
    throw new ImgbatchError("USAGE", "--force works only with --item or --zip.", { param: "--force" });

  const target = await resolveTarget(argument, cwd);
  const needs = { workers: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    requireSubmitted([target], service, context.global);
    const { http } = service;
    if (item !== undefined) {
      const state = target.run?.state;
      const ids = target.ids.filter((id) => state === undefined || standsFor(state, id, item));
      const one = { ids, customId: item, index: index ?? 0 };
      return downloadItem({ http, ...one, output, mayReplace, cwd, signal, reporter: context.output });
    }
    const batches = await requireBatches(http, [target], signal);
    requireEnded(batches);
    const shownDir = output ?? argument;
    const dir = resolve(cwd, shownDir);
    if (wantsZip || dir !== target.run?.dir) {
      const unknown = await unknownRun(target, batches, service, context.global);
      if (unknown !== null) throw unknown.error;
    }
    if (wantsZip) {
      const singly = nextCommand(context.global, "download", argument);
      return downloadZip({
        http,
        batches,
        output,
        mayReplace,
        cwd,
        signal,
        reporter: context.output,
        singly,
      });
    }
    return withRunLock(dir, { clock: context.clock, signal }, () =>
      downloadDirectory(context, service, target, batches, shownDir),
    );
  });
};

async function downloadDirectory(
  context: CommandContext,
  service: ConnectedService,
  target: Target,
  batches: readonly Batch[],
  shownDir: string,
): Promise<CommandResult> {
  const { output: reporter, signal, cwd, clock } = context;
  const dir = resolve(cwd, shownDir);
  // Another process may have changed the state before this one got the lock.
  const own = target.run?.dir === dir ? await readRunState(dir) : null;
  const from = target.run?.state ?? null;
  const runState = own ?? (await adoptDirectory(dir, batches, service, clock, from));
  const known = runState.batches
    .map((entry) => batches.find((batch) => batch.id === entry.id))
    .filter((batch) => batch !== undefined);
  const outcome = await collectRun({
    dir,
    state: runState,
    batches: known,
    service,
    keepZip: false,
    clock,
    reporter,
    signal,
  });
  reporter.settle();
  const { model = null, task_name: name = null } = runState.request ?? {};
  const flags = readReportFlags(context);
  const canRetry = runState.request !== null;
  const advice = canRetry ? fetchAgain(outcome, shownDir) : { retryCommand: null };
  await writeRunReports(context, { outcome, shownDir, model, name, flags, ...advice });
  return describeRun(context, { outcome, replayed: null, shownDir, canRetry });
}

/** Throws `USAGE` for report options: reports describe a whole directory. */
function refuseReports(options: TypedOptions): void {
  for (const name of ["junit", "markdown", "gallery", "open"])
    if (options[name] !== undefined)
      throw new ImgbatchError(
        "USAGE",
        `--${name} works only for a whole directory, not with --item or --zip.`,
        {
          param: `--${name}`,
        },
      );
}

function requireEnded(batches: readonly Batch[]): void {
  const running = batches.find((batch) => !batch.isDone);
  if (running === undefined) return;
  throw notEnded(running);
}
