import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { startFakeUpstream } from "../support/openai-upstream.ts";
import { tempDir } from "../support/temp-dir.ts";

/** A directory with five prompts, whose images cost 0.10 each at an upstream that counts; `d` draws for nothing. */
async function atUpstream() {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GITHUB_ACTIONS", "");
  vi.stubEnv("LAB_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  const upstream = await startFakeUpstream();
  const own = { name: "lab", type: "openai", baseUrl: upstream.url, apiKeyEnv: "LAB_KEY", concurrency: 1 };
  const providers = [
    { ...own, models: ["m"] },
    { name: "drawings", type: "procedural", models: ["d"] },
  ];
  const models = ["m", "d"].map((id) => ({ id, prices: { "1K": 0.1 } }));
  const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers, models, groups }));
  writeFileSync(join(cwd, "p.txt"), "one\ntwo\nthree\nfour\nfive");
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const paid = () => upstream.requests.filter((request) => request.startsWith("POST")).length;
  return { cwd, upstream, run, paid };
}

it("[COST-5] a run says what this command paid, what earlier ones had paid, and what is still to be paid", async () => {
  const { cwd, upstream, run } = await atUpstream();
  const submit = ["submit", "p.txt", "-o", "out", "--max-cost", "0.5"];
  const read = (name: string) => readFileSync(join(cwd, name), "utf8");

  vi.stubEnv("LAB_KEY", "first-key-0123456789");
  upstream.refuseAfter = { images: 2, status: 401, message: "No." };
  expect((await run(...submit)).code).toBe(3);

  vi.stubEnv("LAB_KEY", "second-key-012345678");
  upstream.refuseAfter = null;
  const dry = await run(...submit, "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ pending_count: 3, estimated_cost: 0.3 });
  expect((await run(...submit, "--dry-run")).stdout).toMatch(
    /3 images submitted before are still to be made and paid\n {2}3 images, .*: \$0\.10 each\nestimated cost \$0\.30\n/,
  );

  // The first command has agreed to all of it.
  const rest = await run("submit", "p.txt", "-o", "out", "--json");
  expect(rest.stderr).toContain(
    "5 of 5 images on disk and verified, 3 of them fetched now; $0.30 now ($0.20 paid earlier)",
  );
  expect(rest.json()).toMatchObject({ actual_cost: 0.5, paid_now: 0.3 });

  const reports = ["--junit", "j.xml", "--markdown", "m.md"];
  const again = await run(...submit, ...reports);
  expect(again.stderr).toContain("$0.00 now ($0.50 paid earlier)");
  expect(read("m.md")).toContain("$0.00 now ($0.50 paid earlier)");
  expect(read("j.xml")).toContain('name="cost_usd" value="0"');
  expect(read("j.xml")).toContain('name="cost_usd_earlier" value="0.5"');
  expect(read("j.xml")).toMatch(/<testcase [^>]*time="\d+\.\d{3}"/);
  expect((await run("download", "out")).stderr).toContain("$0.00 now ($0.50 paid earlier)");
});

it("[COST-5] drawings are marked as play money in the results, as everywhere else", async () => {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  const cwd = await tempDir();
  writeFileSync(join(cwd, "p.txt"), "a fox");
  const submit = ["submit", "p.txt", "-o", "out", "--json", "--data", join(cwd, "data")];
  const made = await runInProcess(submit, { cwd });
  expect(made.json()).toMatchObject({ play_money: true, paid_now: 0, items: [{ play_money: true }] });
  const results = readFileSync(join(cwd, "out/results.jsonl"), "utf8");
  expect(JSON.parse(results)).toMatchObject({ play_money: true });
  await runInProcess(submit, { cwd });
  expect(readFileSync(join(cwd, "out/results.jsonl"), "utf8")).toBe(results);
});

it("[UNKNOWN-1] an image whose paid answer was lost is made again by no repeated submit or update, only on request", async () => {
  const { cwd, upstream, run, paid } = await atUpstream();
  const submit = ["submit", "p.txt", "-o", "out", "--max-cost", "0.5"];
  writeFileSync(join(cwd, "p.txt"), "one");
  upstream.losesAnswers = true;
  expect((await run(...submit)).code).toBe(4);
  expect(paid()).toBe(1);
  upstream.losesAnswers = false;
  const again = await run(...submit);
  expect([again.code, again.stderr]).toEqual([4, expect.stringContaining("0 of 1 images on disk")]);
  expect(again.stderr).toContain("next: ");
  expect(paid()).toBe(1);
  writeFileSync(join(cwd, "p.txt"), "one\ntwo");
  expect((await run(...submit, "--update")).stderr).toContain("1 of 2 images on disk");
  expect(paid()).toBe(2);
  expect((await run("retry", "out", "--include-lost", "--max-cost", "0.5")).code).toBe(0);
  expect(paid()).toBe(3);
});

it("[COST-5] a run with real and drawn images says what was paid, and how many were drawn", async () => {
  const { cwd, run, paid } = await atUpstream();
  const prompts = ["m", "d", "d"].map((model, i) => JSON.stringify({ prompt: `picture ${i}`, model }));
  writeFileSync(join(cwd, "p.jsonl"), prompts.join("\n"));
  const made = await run("submit", "p.jsonl", "-o", "out", "--max-cost", "0.1", "--json");
  expect(made.stderr).toContain("3 of 3 images on disk and verified, $0.10; 2 drawn, free of charge\n");
  expect(made.json()).toMatchObject({ actual_cost: 0.1, paid_now: 0.1 });
  expect(made.json()).not.toHaveProperty("play_money");
  expect(paid()).toBe(1);
});
