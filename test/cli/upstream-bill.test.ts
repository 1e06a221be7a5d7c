import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";
import { PNG } from "../support/upstream-adapter.ts";

/** A token of an image costs 0.00003 at OpenAI, and an image in medium quality is listed at 0.053. */
const usage = { input_tokens: 10, output_tokens: 2000 };

/** An upstream that names its tokens, but not for the prompt "silent". It bills an answer without an image for "empty". */
async function startUpstream(): Promise<string> {
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const data =
        request.method === "GET" || text.includes("empty") ? [] : [{ b64_json: PNG.toString("base64") }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ data, ...(text.includes("silent") ? {} : { usage }) }));
    });
  });
  return `${await listening(server)}/v1`;
}

async function atOpenai(prompts: string) {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  const providers = [{ preset: "openai", baseUrl: await startUpstream() }];
  const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers, groups }));
  writeFileSync(join(cwd, "p.txt"), prompts);
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const submit = () => run("submit", "p.txt", "-o", "out", "--max-cost", "1", "--json");
  return { run, submit };
}

it("[BILL-1] a run and admin usage say what the upstream billed, failures included, beside the price that was agreed", async () => {
  const { run, submit } = await atOpenai("fox\nempty");
  const made = await submit();
  expect(made.json()).toMatchObject({ actual_cost: 0.053, upstream_cost: 0.1201 });
  expect(made.json()).not.toHaveProperty("upstream_cost_about");
  expect(made.stderr).toContain("billed by the upstream: $0.1201 (the list price of the images is $0.053)");
  expect((await run("admin", "usage", "--json")).json()).toMatchObject({
    usage: [{ requests: 2, images: 1, billed: 0.053, upstream_cost: 0.1201, not_reported: 0 }],
  });
});

it("[BILL-1] says about where the list price stands for what the upstream does not report", async () => {
  const { run, submit } = await atOpenai("fox\nsilent");
  const made = await submit();
  expect(made.json()).toMatchObject({
    actual_cost: 0.106,
    upstream_cost: 0.11305,
    upstream_cost_about: true,
  });
  expect(made.stderr).toContain("billed by the upstream: about $0.11305, with list prices");
  expect((await run("admin", "usage", "--json")).json()).toMatchObject({
    usage: [{ billed: 0.106, upstream_cost: 0.06005, not_reported: 0.053 }],
  });
});

it("[BILL-1] generate says what the upstream billed, for one image and for a file of prompts", async () => {
  const { run } = await atOpenai("fox\nsilent");
  const one = await run("generate", "a fox", "-o", "fox.png", "--max-cost", "1", "--json");
  expect(one.json()).toMatchObject({ cost: 0.053, upstream_cost: 0.06005 });
  expect(one.stderr).toContain("billed by the upstream: $0.06005 (the list price of the images is $0.053)");
  const all = await run("generate", "--file", "p.txt", "-o", "out", "--max-cost", "1", "--json");
  expect(all.json()).toMatchObject({ cost: 0.106, upstream_cost: 0.11305, upstream_cost_about: true });
  expect(all.stderr).toContain("billed by the upstream: about $0.11305, with list prices");
});

it("[BILL-1] generate says what the upstream billed for an answer without an image", async () => {
  const { run } = await atOpenai("fox\nempty");
  const one = await run("generate", "empty", "-o", "x.png", "--max-cost", "1", "--json");
  expect(one.json().error?.message).toMatch(/The upstream billed \$0\.\d+ for it\./);
  const all = await run("generate", "--file", "p.txt", "-o", "out", "--max-cost", "1", "--json");
  const { upstream_cost, items } = all.json() as {
    upstream_cost: number;
    items: { upstream_cost: number }[];
  };
  const sum = items.reduce((micros, item) => micros + Math.round(item.upstream_cost * 1e6), 0);
  expect([all.code, items.map((item) => item.upstream_cost > 0)]).toEqual([4, [true, true]]);
  expect(Math.round(upstream_cost * 1e6)).toBe(sum);
});
