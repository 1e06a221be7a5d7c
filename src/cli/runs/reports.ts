import { resolve } from "node:path";
import { readActionsEnvironment } from "../../environment.ts";
import { readRunInput } from "../../runs/directory/input-file.ts";
import { type RunState, readRunState } from "../../runs/directory/run-state.ts";
import type { RunOutcome } from "../../runs/outcome/collect-run.ts";
import { isFailed, isMissing } from "../../runs/outcome/image-outcome.ts";
import { buildReport, type EndedImage, shellWord } from "../../runs/reports/run-report.ts";
import type { MakeThumbnail } from "../../runs/reports/small-pictures.ts";
import { writeReports } from "../../runs/reports/write-reports.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { textOption } from "../command-line/option-values.ts";

/** Which reports the caller wants, from the options of the command. */
export interface ReportFlags {
  junit: string | undefined;
  markdown: string | undefined;
  gallery: boolean;
}

/** Reads `--junit`, `--markdown` and `--no-gallery`; paths are taken from the working directory on. */
export function readReportFlags({ options, cwd }: Pick<CommandContext, "options" | "cwd">): ReportFlags {
  const path = (name: string) => {
    const text = textOption(options, name);
    return text === undefined ? undefined : resolve(cwd, text);
  };
  return { junit: path("junit"), markdown: path("markdown"), gallery: options.gallery !== false };
}

/**
 * Writes the reports of a run that has ended: the contact sheet, what the flags name, and what GitHub Actions shows.
 * `model` and `name` are what the images were made with; null where that is not known. `retryCommand` makes the failed
 * images again where `imgbatch retry` does not; null for none.
 */
export async function writeRunReports(
  context: Pick<CommandContext, "output" | "signal" | "clock">,
  run: {
    outcome: { dir: string; lines: readonly EndedImage[] };
    shownDir: string;
    model: string | null;
    name: string | null;
    flags: ReportFlags;
    retryCommand?: string | null;
  },
): Promise<void> {
  const { outcome, shownDir, flags, ...rest } = run;
  const { dir, lines } = outcome;
  const runState: RunState | null = await readRunState(dir);
  if (runState === null) return;
  const input = await readRunInput(dir);
  const facts = { ...rest, directory: shownDir, state: runState, lines, input, nowMs: context.clock.nowMs() };
  context.output.progress("writing the reports");
  await writeReports(dir, buildReport(facts), {
    ...flags,
    actions: readActionsEnvironment(),
    loadThumbnail,
    say: context.output.note,
    annotate: context.output.annotate,
    signal: context.signal,
  });
  context.output.settle();
}

/** What the reports advise when nothing has failed, and images are only not here: to make them anew is paid again. */
export function fetchAgain({ lines }: RunOutcome, shownDir: string): { retryCommand?: string } {
  if (lines.some(isFailed) || !lines.some(isMissing)) return {};
  return { retryCommand: `imgbatch download ${shellWord(shownDir)}` };
}

/** The image library is large: it is loaded for a page that is written, and not missed where it cannot be. */
async function loadThumbnail(): Promise<MakeThumbnail | null> {
  try {
    const { Decoding } = await import("../../imaging/decoding.ts");
    const { thumbnail } = await import("../../imaging/thumbnail.ts");
    const decoding = new Decoding();
    return (bytes, maxEdgePx) => thumbnail(bytes, maxEdgePx, decoding);
  } catch {
    return null;
  }
}
