import { statSync } from "node:fs";
import { relative } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Seconds that files take which wait, or start programs, for longer than their size says. Roughly, in a whole run. */
const SECONDS: Record<string, number> = {
  "cli/mcp": 15,
  "cli/finish": 14,
  "cli/init": 13,
  "scenarios/replay": 15,
  "scenarios/realtime-kill": 12,
  "console/console": 40,
  "service/roles": 35,
  "storage/postgres": 40,
  "storage/postgres-notices": 8,
  "storage/blobs/s3": 10,
  "service/tracing": 15,
  "upstreams/canary": 8,
  "upstreams/jobs/ends": 10,
  "upstreams/jobs/kills": 9,
  "upstreams/jobs/lost-answers": 12,
  "scenarios/disk-errors": 15,
  "scenarios/kill-runs": 30,
  "upstreams/two-upstreams": 11,
  "providers/command/run-program": 10,
  "scenarios/live-view-terminal": 10,
  "scenarios/kill": 8,
  "scenarios/never-pay-twice": 7,
  "sdk/openai-batches-kills": 7,
  "upstreams/outages": 7,
  "repo/package": 6,
  "scenarios/simulation": 12,
  "storage/data-lock": 6,
  "service/storage/s3-outage": 4,
};
/** Of the other files. */
const BYTES_A_SECOND = 2400;

/** Begins with the files that take longest: one that begins last would leave a core without work. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const all = files.map((file) => ({ file, seconds: secondsOf(file.moduleId) }));
    return all.sort((a, b) => b.seconds - a.seconds).map(({ file }) => file);
  }
}

function secondsOf(path: string): number {
  const name = relative(`${import.meta.dirname}/..`, path).replace(/\.test\.tsx?$/, "");
  return SECONDS[name] ?? statSync(path).size / BYTES_A_SECOND;
}
