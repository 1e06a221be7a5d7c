// Benchmarks: each is a ratio to a baseline that is measured in the same run, in turns with it, so that a busy or a
// slow machine changes both. Run with `npm run bench`; needs a build. `--json` prints one document.
import { measureThumbnails } from "./console.mjs";
import { measureEventStreams } from "./event-streams.mjs";
import { measureLists } from "./lists.mjs";
import { measureLiveView } from "./live-view.mjs";
import { measureOnPostgres } from "./on-postgres.mjs";
import { measurePipeline } from "./pipeline.mjs";
import { measureRequests } from "./requests.mjs";
import { measureRestart } from "./restart.mjs";
import { measureStartUp } from "./start-up.mjs";
import { measureUpstream } from "./upstream.mjs";
import { measureZip } from "./zip.mjs";

const results = [
  ...(await measureStartUp()),
  await measurePipeline(),
  await measureRestart(),
  await measureLiveView(),
  await measureEventStreams(),
  ...(await measureThumbnails()),
  await measureZip(),
  await measureLists(),
  ...(await measureOnPostgres()),
  ...(await measureRequests()),
  await measureUpstream({ images: 1000, latencyMs: 50, concurrency: 8, goal: "at most 1.05" }),
  await measureUpstream({ images: 2000, latencyMs: 2000, concurrency: 200, goal: "at most 1.02" }),
];
if (process.argv.includes("--json")) {
  process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);
} else {
  for (const { name, ratio, goal, facts } of results) {
    process.stdout.write(`${name}: ${ratio.toFixed(2)} (${goal})\n`);
    for (const [fact, value] of Object.entries(facts)) process.stdout.write(`  ${fact}: ${value}\n`);
  }
}
