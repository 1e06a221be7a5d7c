import { randomBytes } from "node:crypto";
import { appendFile } from "node:fs/promises";
import { toMarkdown } from "./markdown.ts";
import type { ReportImage, RunReport } from "./run-report.ts";

/** The files into which a step of GitHub Actions writes its summary and outputs. Undefined where there is none. */
export interface ActionsFiles {
  summary: string | undefined;
  output: string | undefined;
  /** The output `directory`. Default: as the caller named it. */
  directory?: string;
}

/** GitHub shows this many annotations of a step, and takes this much of a summary. */
const MAX_ANNOTATIONS = 10;
const MAX_SUMMARY_BYTES = 1_000_000;

/**
 * Appends the step's summary, and its outputs `batch_id` (several between blanks), `directory`, `success_count` and
 * `fail_count`. A summary that does not fit into the file is left out.
 */
export async function writeActionsFiles(report: RunReport, files: ActionsFiles): Promise<void> {
  // A link of a summary leads to no file of the job.
  const summary = toMarkdown(report, null);
  if (files.summary !== undefined && Buffer.byteLength(summary) <= MAX_SUMMARY_BYTES)
    await appendFile(files.summary, `${summary}\n`);
  if (files.output !== undefined) await appendFile(files.output, outputText(report, files.directory));
}

function outputText(
  { batches, directory: shown, images, failedCount }: RunReport,
  directory = shown,
): string {
  const values = {
    batch_id: batches.map(({ id }) => id).join(" "),
    directory,
    success_count: images.length - failedCount,
    fail_count: failedCount,
  };
  // A value cannot end its own text early: it does not know the delimiter.
  const end = `imgbatch_${randomBytes(16).toString("hex")}`;
  return Object.entries(values)
    .map(([name, value]) => `${name}<<${end}\n${value}\n${end}\n`)
    .join("");
}

/** Returns the failures as annotations, a line each, with file and line of the prompt. The last line counts the failures that are not shown. */
export function annotations({ images, failedCount, directory }: RunReport): string[] {
  const shown = failedCount > MAX_ANNOTATIONS ? MAX_ANNOTATIONS - 1 : failedCount;
  const failed = images.filter((image) => image.error !== null).slice(0, shown);
  const lines = failed.map(({ id, error, fileLine }) =>
    annotation(`${id}: ${error?.code}`, error?.message ?? "", fileLine),
  );
  const more = failedCount - shown;
  return more > 0
    ? [...lines, annotation("imgbatch", `${more} more images failed; see results.jsonl in ${directory}`)]
    : lines;
}

function annotation(title: string, message: string, fileLine: ReportImage["fileLine"] = null): string {
  const at = fileLine === null ? "" : `file=${escapeProperty(fileLine.file)},line=${fileLine.line},`;
  return `::error ${at}title=${escapeProperty(title)}::${escapeData(message)}`;
}

function escapeData(text: string): string {
  return text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
}

function escapeProperty(text: string): string {
  return escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
}
