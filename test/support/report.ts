import type { ItemFacts } from "../../src/client/answers.ts";
import type { ResultLine } from "../../src/runs/directory/results.ts";
import { buildReport, type RunReport } from "../../src/runs/reports/run-report.ts";

type ReportFacts = Parameters<typeof buildReport>[0];

/** An image of a made-up run: it failed when it has an error. */
export interface MadeImage {
  id: string;
  prompt?: string;
  path?: string;
  entry?: string;
  error?: { code: string; message: string };
  facts?: ItemFacts;
  source?: { id?: string; file: string; line: number; values?: Record<string, string> };
  metadata?: Record<string, unknown>;
  /** Options of its line. */
  asked?: Record<string, string | number>;
}

/** A report of images that need not be on disk. */
export function reportOf(images: readonly MadeImage[], facts: Partial<ReportFacts> = {}): RunReport {
  const lines = images.map(({ id, error, path, entry, facts }): ResultLine => {
    const file = {
      path: path ?? `images/${id}.png`,
      ...(entry === undefined ? {} : { entry }),
      sha256: "0".repeat(64),
      bytes: 12_345,
      mime_type: "image/png",
      width: 1024,
      height: 768,
    };
    const failed = { status: "failed", files: [], error: { source: "provider", ...error } };
    const rest = error === undefined ? { status: "success", files: [file] } : failed;
    return { custom_id: id, batch_id: "imgbatch_1", ...facts, ...rest } as ResultLine;
  });
  const batch = { id: "imgbatch_1", status: "completed", actual_cost: 0.0335 };
  return buildReport({
    directory: "out",
    name: null,
    model: "a-model",
    state: {
      created_at: "2031-05-06T07:08:09.000Z",
      finished_at: "2031-05-06T07:08:39.500Z",
      batches: [batch],
    } as unknown as ReportFacts["state"],
    lines,
    input: new Map(
      images.flatMap(({ id, prompt, source, metadata, asked }) =>
        prompt === undefined
          ? []
          : [[id, { prompt, ...asked, ...(source && { source }), ...(metadata && { metadata }) }]],
      ),
    ),
    nowMs: 0,
    ...facts,
  });
}

/** Prompts that break out of places where text does not belong. */
export const HOSTILE = [
  "</script><script>document.title='owned'</script>",
  "<img src=x onerror=\"document.title='owned'\">",
  `" onmouseover="x" data-y='`,
  "]]> <!-- --> {{title}} $& $1 &amp; &#x3c;",
  "\u202Eright to left\u2066 without an end",
  "nul \u0000 escape \u001b[31m bell \u0007 half \ud800 \uffff",
  "W".repeat(5000),
  "| a | b |\n\n# heading [link](javascript:x) `code` @everyone ::error::x",
];
