// A whole service with a provider that makes pictures at once, warmed up before it is told to go, so that a thousand
// of them can be killed in minutes. Says `{"warm":true,"thread":TID}` (the thread that touches files), reads one line
//   {"data", "generations", "boot", "die": {"step": N, "after": true} | null}
// and then says its address, as `imgbatch serve` does. `die` kills it at its Nth durable step (a sync, a rename, a
// removal, a commit). Every picture that is asked for is a line in the file `generations` first.
import { openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import fs, { open } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { createInterface } from "node:readline";
import { crc32 } from "node:zlib";
import Sqlite from "better-sqlite3";
import { parseConfig } from "../../build/config/load.js";
import { ProviderError } from "../../build/domain/ports/image-provider.js";
import { Decoding } from "../../build/imaging/decoding.js";
import { sharpInspector } from "../../build/imaging/sharp-images.js";
import { systemClock } from "../../build/kernel/clock.js";
import { silentLog } from "../../build/kernel/log.js";
import { parseDirectives } from "../../build/providers/procedural/provider.js";
import { startService } from "../../build/service/start-service.js";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);
const HEAD_BYTES = 8 + 25;

/** A picture that says in a text chunk what it is of: other words, other bytes. */
function pictureOf(words) {
  const body = Buffer.concat([Buffer.from("tEXt"), Buffer.from(`Comment\0${words}`)]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(body.length - 4);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([PNG.subarray(0, HEAD_BYTES), length, body, sum, PNG.subarray(HEAD_BYTES)]);
}

function quickProvider(order) {
  const log = openSync(order.generations, "a");
  return {
    kind: "item",
    name: "procedural",
    concurrency: 3,
    serves: () => true,
    generate: async ({ prompt, outputIndex, attempt, origin }, signal) => {
      const { text, directives } = parseDirectives(prompt);
      const made = `${text}#${outputIndex}`;
      writeSync(log, `${JSON.stringify({ boot: order.boot, made, attempt })}\n`);
      if (directives.delayMs > 0) await systemClock.sleep(directives.delayMs, signal);
      const code = directives.fail ?? (origin === "batch" ? directives.failOnce : null);
      if (code) throw new ProviderError(code, "as told", { retryAfterMs: directives.retryAfterMs ?? 5 });
      const images = Array.from({ length: directives.imageCount }, (_, i) => pictureOf(`${made}.${i}`));
      return { images, modelVersion: null };
    },
    close: async () => {},
  };
}

/** Counts durable steps and dies at the one that was ordered, before it or after it. */
async function dieAt({ step, after }) {
  let steps = 0;
  const pass = (isBefore) => {
    if (isBefore) steps++;
    if (steps === step && isBefore !== after) process.kill(process.pid, "SIGKILL");
  };
  const around =
    (real) =>
    async (...given) => {
      pass(true);
      const result = await real(...given);
      pass(false);
      return result;
    };
  for (const name of ["rename", "rm", "mkdir"]) fs[name] = around(fs[name]);
  syncBuiltinESMExports();
  const handle = await open(".", "r");
  const prototype = Object.getPrototypeOf(handle);
  await handle.close();
  const { sync } = prototype;
  prototype.sync = function () {
    return around(() => sync.call(this))();
  };
  const { transaction } = Sqlite.prototype;
  Sqlite.prototype.transaction = function (work) {
    const real = transaction.call(this, (...given) => {
      const result = work(...given);
      pass(true);
      return result;
    });
    const immediate = (...given) => {
      const result = real.immediate(...given);
      pass(false);
      return result;
    };
    return { immediate, deferred: transaction.call(this, work).deferred };
  };
}

/** The thread that reads a file is the one whose count of read bytes grows by it. */
async function fileThread() {
  if (process.platform !== "linux") return null;
  const task = "/proc/self/task";
  const readBytes = (thread) => Number(/rchar: (\d+)/.exec(readFileSync(`${task}/${thread}/io`, "utf8"))[1]);
  const threads = readdirSync(task).filter((thread) => Number(thread) !== process.pid);
  const before = new Map(threads.map((thread) => [thread, readBytes(thread)]));
  const bytes = Buffer.alloc(1 << 20);
  const file = await open(process.execPath, "r");
  await file.read(bytes, 0, bytes.length, 0);
  await file.close();
  const reader = readdirSync(task).find(
    (thread) =>
      Number(thread) !== process.pid && readBytes(thread) - (before.get(thread) ?? 0) >= bytes.length,
  );
  return reader === undefined ? null : Number(reader);
}

const thread = await fileThread();
await sharpInspector(new Decoding()).inspect(pictureOf("warm"), { maxPixels: 100 });
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
process.stdout.write(`${JSON.stringify({ warm: true, thread })}\n`);
const { value, done } = await lines.next();
if (done) process.exit(0);
const order = JSON.parse(value);
// The process that gave the order is gone: nobody would end this one.
lines.next().then(() => process.exit(1));
if (order.die) await dieAt(order.die);
const service = await startService({
  config: parseConfig({}, "soak"),
  dataDirectory: order.data,
  address: { host: "127.0.0.1", port: 0 },
  announceUrl: true,
  workers: true,
  log: silentLog,
  providers: [quickProvider(order)],
});
process.once("SIGTERM", async () => {
  await service.close(2000);
  process.exit(0);
});
process.stdout.write(`${JSON.stringify({ event: "ready", url: service.url })}\n`);
