// The soak test: does random work with a service, kills it at random moments and at chosen system calls, starts it
// again, and checks that nothing that was promised is lost, made twice or paid twice. Run with `npm run soak`; needs a
// build. Options: --kills N (300), --seed S, --minutes M, --only STORY (as a report of a broken promise names it), --keep (leave the files there).
// The last line of standard output is a summary as JSON; the exit code is 1 when a promise was broken.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { plan } from "./plan.mjs";
import { Tale } from "./tale.mjs";
import { dropSpare, hasStrace } from "./victims.mjs";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    minutes: { type: "string", default: "600" },
    only: { type: "string" },
    keep: { type: "boolean", default: false },
  },
});
const kills = Number(values.kills);
const { seed } = values;
const say = (line) => process.stderr.write(`${line}\n`);
if (!hasStrace) say("soak: there is no strace that may watch here: kills at system calls are SKIPPED");

const startedMs = Date.now();
const deadlineMs = startedMs + Number(values.minutes) * 60_000;
const root = await mkdtemp(join(tmpdir(), "imgbatch-soak-"));
const done = {};
const broken = [];
let stories = 0;
const total = () => Object.values(done).reduce((sum, count) => sum + count, 0);

const told = values.only === undefined ? await plan({ seed, kills, root }) : [JSON.parse(values.only)];
for (const story of told) {
  if (total() >= kills || Date.now() > deadlineMs) break;
  const directory = join(root, `story-${story.number}`);
  const tale = new Tale({ ...story, directory, seed });
  try {
    await tale.tell();
    if (!values.keep) await rm(directory, { recursive: true, force: true });
  } catch (error) {
    const again = `npm run soak -- --seed ${seed} --keep --only '${JSON.stringify(tale.again)}'`;
    broken.push({ story: story.number, problem: error.message, directory, again });
    say(`soak: BROKEN in story ${story.number}: ${error.stack}\n  again: ${again}`);
    if (broken.length >= 5) break;
  }
  stories++;
  for (const [how, count] of Object.entries(tale.kills)) done[how] = (done[how] ?? 0) + count;
  if (stories % 10 === 0) {
    const seconds = (Date.now() - startedMs) / 1000;
    say(`soak: ${total()} kills in ${stories} stories, ${seconds.toFixed(0)} s, ${broken.length} broken`);
  }
}
await dropSpare();
if (broken.length === 0 && !values.keep) await rm(root, { recursive: true, force: true });
const seconds = Math.round((Date.now() - startedMs) / 100) / 10;
const summary = {
  ok: broken.length === 0,
  seed,
  kills: total(),
  by: done,
  stories,
  seconds,
  strace: hasStrace,
  broken,
};
process.stdout.write(`${JSON.stringify(summary)}\n`);
process.exitCode = broken.length === 0 ? 0 : 1;
