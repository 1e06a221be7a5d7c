// Two APIs and three workers in processes of their own on PostgreSQL and S3, of which everything is killed, stopped,
// restarted, cut off and made to fail, while customers work:
//   node test/soak/cluster-kills.mjs [--kills 300] [--seed N]
// Ends with 0 when every promise was kept. Needs a build and PostgreSQL. A report of a broken promise names the seed.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startVitest } from "vitest/node";

const { values } = parseArgs({ options: { kills: { type: "string" }, seed: { type: "string" } } });
const kills = Number(values.kills ?? 300);
const seed = Number(values.seed ?? Date.now() % 2 ** 31);
process.stdout.write(`kills ${kills}, seed ${seed}\n`);
const root = fileURLToPath(new URL("../..", import.meta.url));
await startVitest("test", ["test/scenarios/cluster-kills.test.ts"], {
  root,
  config: `${root}/test/vitest.config.ts`,
  watch: false,
  provide: { kills, seed },
});
