import { writeFile } from "node:fs/promises";
import { dirname, relative, sep } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { type MakeThumbnail, writeGallery } from "./gallery.ts";
import { type ActionsFiles, annotations, writeActionsFiles } from "./github-actions.ts";
import { toJunit } from "./junit.ts";
import { toMarkdown } from "./markdown.ts";
import type { RunReport } from "./run-report.ts";

/** The requested reports of a run, with their paths. */
interface ReportOptions {
  /** Absolute paths. */
  junit?: string | undefined;
  markdown?: string | undefined;
  gallery: boolean;
  /** Null outside GitHub Actions. */
  actions: ActionsFiles | null;
  loadThumbnail: () => Promise<MakeThumbnail | null>;
  /** A line for people who read a log. */
  say(line: string): void;
  /** A line that GitHub makes an annotation of. */
  annotate(line: string): void;
  signal?: AbortSignal | undefined;
}

/**
 * Writes the reports of a run. Throws `SAVE_FAILED` when a report that the caller named cannot be written. A failure of
 * the contact sheet, or of the files for GitHub, is only noted in a line.
 */
export async function writeReports(dir: string, report: RunReport, options: ReportOptions): Promise<void> {
  const { junit, markdown, gallery, actions, say, signal } = options;
  if (actions !== null) {
    for (const line of annotations(report)) options.annotate(line);
    await orSay(say, "the step summary", () => writeActionsFiles(report, actions));
  }
  if (gallery)
    await orSay(say, "the contact sheet", () =>
      writeGallery(dir, report, { loadThumbnail: options.loadThumbnail, signal }),
    );
  signal?.throwIfAborted();
  if (junit !== undefined) await writeReport(junit, toJunit(report));
  if (markdown === undefined) return;
  const directory = relative(dirname(markdown), dir).replaceAll(sep, "/") || ".";
  await writeReport(markdown, toMarkdown(report, directory));
}

async function writeReport(path: string, text: string): Promise<void> {
  await saving(path, async () => {
    await makeDirectory(dirname(path));
    await writeFile(path, text);
  });
}

async function orSay(say: (line: string) => void, what: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    say(`could not write ${what}: ${error instanceof Error ? error.message : error}`);
  }
}
