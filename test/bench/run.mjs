// Benchmarks: each is a ratio to a baseline that is measured in the same run, in turns with it, so that a busy or a
// slow machine changes both. Run with `npm run bench`; needs a build. `--json` prints one document. Exits 1 when a goal
// is missed.
import { isMet, rowText } from "./goals.mjs";
import { measureLiveView } from "./live-view.mjs";
import { measurePipeline } from "./pipeline.mjs";
import { measureReplay } from "./replay.mjs";
import { measureRequests } from "./requests.mjs";
import { measureStartUp } from "./start-up.mjs";
import { measureRefusals, measureUpstream } from "./upstream.mjs";
import { measureZip } from "./zip.mjs";

const measures = [
  measureStartUp,
  measurePipeline,
  measureLiveView,
  measureZip,
  measureRequests,
  measureReplay,
  () => measureUpstream({ images: 1000, latencyMs: 50, concurrency: 8, goal: { atMost: 1.1 } }),
  () => measureUpstream({ images: 2000, latencyMs: 2000, concurrency: 200, goal: { atMost: 1.08 } }),
  () => measureRefusals({ images: 200, latencyMs: 250, concurrency: 4, goal: { atMost: 1.2 } }),
];
const asJson = process.argv.includes("--json");
const rows = [];
for (const measure of measures) {
  for (const row of [await measure()].flat()) {
    rows.push({ ...row, isMet: isMet(row) });
    if (!asJson) process.stdout.write(rowText(row));
  }
}
const missed = rows.filter((row) => !row.isMet);
if (asJson) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
else process.stdout.write(`${rows.length - missed.length} of ${rows.length} goals are met\n`);
if (missed.length > 0) process.exitCode = 1;
