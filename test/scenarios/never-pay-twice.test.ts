import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { hasStrace } from "../soak/killed-service.ts";
import { killSubmits } from "../soak/submit-kills.ts";
import { createCli } from "../support/cli.ts";
import { tempDir } from "../support/temp-dir.ts";

if (!hasStrace) process.stderr.write("skipped: no strace here, so submit is only killed at random moments\n");

it("[RUN-23] a submit that is killed at any moment and run again makes each batch once, and has all files", async () => {
  // A chosen step is hit for certain, a random moment is not.
  const usual = hasStrace ? { random: 0, traced: 1 } : { random: 1, traced: 0 };
  const kills = inject("kills");
  const counts = kills === undefined ? usual : { random: Math.ceil(kills / 8), traced: Math.ceil(kills / 8) };
  const { killed, problems } = await killSubmits(await tempDir(), { ...counts, seed: inject("seed") ?? 11 });
  expect(problems).toEqual([]);
  if (hasStrace) expect(killed).toBeGreaterThan(0);
}, 1_200_000);

it("on a machine without the directory the same batch is found, and that is said", async () => {
  const cli = await createCli();
  writeFileSync(join(cli.cwd, "p.jsonl"), JSON.stringify({ prompt: "a cat" }));
  expect((await cli.here(["submit", "p.jsonl", "-q"])).code).toBe(0);
  rmSync(join(cli.cwd, "p-images"), { recursive: true });
  const { code, stderr, json } = await cli.run(["submit", "p.jsonl", "--json"]);
  expect([code, json().replayed]).toEqual([0, true]);
  expect(stderr).toMatch(/re-using imgbatch_\w+ submitted 2 h ago \(--new to generate again\)/);
  expect(cli.fake.batches).toHaveLength(1);
});

it("[RUN-8] a submit that is killed while it waits for the answer has its intent on disk, and resolves it", async () => {
  const cli = await createCli();
  writeFileSync(join(cli.cwd, "p.jsonl"), JSON.stringify({ prompt: "a cat" }));
  const runState = () => JSON.parse(readFileSync(join(cli.cwd, "p-images", "imgbatch.json"), "utf8"));
  let atRequest: unknown = null;
  cli.fake.fault(/^POST/, {
    lie: (answer) => {
      atRequest = runState().batches[0];
      child.kill("SIGKILL");
      return answer;
    },
  });
  const { child, ended } = cli.start(["submit", "p.jsonl"]);
  await ended;
  const [made] = cli.fake.batches;
  expect(atRequest).toMatchObject({ state: "intent", id: null, idempotency_key: made?.key });
  expect((await cli.here(["submit", "p.jsonl", "-q"])).code).toBe(0);
  expect(runState().batches[0]).toMatchObject({ state: "created", id: made?.id });
  expect(cli.fake.batches).toHaveLength(1);
});

it("[RUN-21] of two submits of one run at once the second exits with 6, and a kill leaves the run free", async () => {
  const cli = await createCli({ statuses: ["running"] });
  writeFileSync(join(cli.cwd, "p.jsonl"), JSON.stringify({ prompt: "a cat" }));
  const first = cli.start(["submit", "p.jsonl"]);
  await expect.poll(() => cli.fake.count(/^GET .*imgbatch_\w+$/)).toBeGreaterThan(0);
  const second = await cli.here(["submit", "p.jsonl", "--json"]);
  expect([second.code, second.json().error?.code]).toEqual([6, "DIRECTORY_IN_USE"]);
  first.child.kill("SIGKILL");
  await first.ended;
  for (const batch of cli.fake.batches) batch.statuses = ["completed"];
  expect((await cli.here(["submit", "p.jsonl", "-q"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(1);
});
