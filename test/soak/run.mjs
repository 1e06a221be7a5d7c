// The long runs of the tests that a seed decides: a service and a cluster that are killed, cut off and restarted while customers
// work; a submit that is killed; and stories of one person whose accounts must agree. With `--stories` only these; with
// `--rounds`, orders of cancellation and work, and stories with crashes instead.
//   npm run soak -- [--kills 300] [--stories 2000] [--rounds 10000] [--hours 8] [--seed N] [--run NUMBER]
// With `--hours`, a cluster works so long under mixed load, kills, database restarts and steps of its clocks. The last line says
// what became of memory, files and rows.
// A report of a broken promise names the seed, which tells the same again, and the number of the run: `--run` tells only that.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startVitest } from "vitest/node";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    stories: { type: "string" },
    rounds: { type: "string" },
    hours: { type: "string" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    run: { type: "string" },
  },
});
const provide = Object.fromEntries(
  Object.entries(values).flatMap(([name, value]) => (value === undefined ? [] : [[name, Number(value)]])),
);
const isOther = [values.rounds, values.hours, values.stories].some((value) => value !== undefined);
if (isOther) delete provide.kills;
else provide.stories = 2000;
process.stdout.write(`${JSON.stringify(provide)}\n`);
const everything = ["kill-runs", "never-pay-twice", "money-stories"];
const kinds = values.rounds === undefined ? everything : ["simulation"];
const only = values.stories === undefined ? kinds : ["money-stories"];
const names = values.hours === undefined ? only : ["kill-runs"];
const root = fileURLToPath(new URL("../..", import.meta.url));
await startVitest(
  "test",
  names.map((name) => `test/scenarios/${name}.test.ts`),
  {
    root,
    config: `${root}/test/vitest.config.ts`,
    watch: false,
    provide,
  },
);
