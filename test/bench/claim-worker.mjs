// A worker that does nothing but claim: node claim-worker.mjs DATABASE_URL BATCH_IDS
// It prints a line when it is ready, begins at a line of input, and prints how many items it has claimed.
import { once } from "node:events";
import { systemClock } from "../../build/kernel/clock.js";
import { randomIds } from "../../build/kernel/ids.js";
import { openPostgres } from "../../build/storage/dialects/postgres.js";
import { sqlStores } from "../../build/storage/stores.js";

const AT_ONCE = 8;

const [url, list] = process.argv.slice(2);
const database = await openPostgres({ url }, systemClock);
const stores = sqlStores(database);
const worker = randomIds.recordId("worker");
const record = { id: worker, role: "worker", version: "bench", providers: ["p"], isPaused: false };
await stores.write((tx) => tx.workers.insert(record));
await stores.read.workers.list();
process.stdout.write("ready\n");
await once(process.stdin, "data");

let count = 0;
const ids = list.split(",");
// Each begins elsewhere, as the turns of a scheduler do.
for (let at = process.pid; ids.length > 0; at++) {
  const batchId = ids[at % ids.length];
  const claim = { worker, provider: "p", isPaid: false, which: "any", mostSwitches: 2, limit: AT_ONCE };
  const facts = { ...claim, token: randomIds.leaseToken(), nowMs: Date.now() };
  const items = await stores.write((tx) => tx.items.claim(batchId, facts));
  if (items.length === 0) ids.splice(at % ids.length, 1);
  count += items.length;
}
process.stdout.write(`${count}\n`);
await database.close();
process.exit(0);
