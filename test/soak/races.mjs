// The races and stories of the suite, many more of them and on seeds of their own:
//   node test/soak/races.mjs [--rounds 10000] [--seed N]
// Ends with 0 when nothing was wrong. A failure names its seed: the same seed tells the same story again.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startVitest } from "vitest/node";

const { values } = parseArgs({ options: { rounds: { type: "string" }, seed: { type: "string" } } });
const rounds = Number(values.rounds ?? 10_000);
const seed = Number(values.seed ?? Date.now() % 2 ** 31);
process.stdout.write(`rounds ${rounds}, seed ${seed}\n`);
const root = fileURLToPath(new URL("../..", import.meta.url));
const files = ["cancel-races", "money-stories", "three-processes"].map(
  (name) => `test/scenarios/${name}.test.ts`,
);
await startVitest("test", files, {
  root,
  config: `${root}/test/vitest.config.ts`,
  watch: false,
  provide: { rounds, seed },
});
