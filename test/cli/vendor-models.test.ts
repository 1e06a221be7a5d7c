import { existsSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { runInProcess, runOnTerminal } from "../support/cli-in-process.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { listening } from "../support/listening.ts";
import { watchSecret } from "../support/secrets.ts";
import { tempDir } from "../support/temp-dir.ts";

const KEY = "canary-models-key-0123456789";
const DAY_MS = 86_400_000;
const inDays = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);

let cwd: string;
beforeEach(async () => {
  vi.stubEnv("XDG_CACHE_HOME", await tempDir());
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", KEY);
  watchSecret(KEY);
  cwd = await tempDir();
  writeFileSync(join(cwd, "p.jsonl"), '{"prompt": "a fox"}');
});

/** A vendor that speaks OpenAI's API, and refuses prompts with `[[refuse]]`. `list` null: its list cannot be read. */
async function startVendor(models: Record<string, string | null>) {
  const vendor = {
    list: models as Record<string, string | null> | null,
    /** The models of paid requests. */
    paid: [] as string[],
    lists: 0,
  };
  const image = (await tinyPng()).toString("base64");
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    response.setHeader("content-type", "application/json");
    const list = vendor.list;
    if (request.method === "GET") {
      vendor.lists++;
      if (list === null) return void response.writeHead(503).end("{}");
      const data = Object.entries(list).map(([id, shutdown_date]) => ({ id, shutdown_date }));
      return void response.end(JSON.stringify({ object: "list", data }));
    }
    const { model, prompt } = JSON.parse(Buffer.concat(chunks).toString());
    if (prompt.includes("[[refuse]]")) return void response.writeHead(400).end("{}");
    vendor.paid.push(model);
    response.end(JSON.stringify({ data: [{ b64_json: image }] }));
  });
  const provider = { preset: "openai", baseUrl: `${await listening(server)}/v1` };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ providers: [provider] }));
  return vendor;
}

const CONFIG = ["--config", "imgbatch.config.json"];
const withData = (args: readonly string[]) => [...args, ...CONFIG, "--data", join(cwd, "data")];
const run = (...args: string[]) => runInProcess(withData(args), { cwd });
const SUBMIT = ["submit", "p.jsonl", "-o", "out"];

describe("a run on a paid upstream", () => {
  it("[VENDOR-1] does not start on a model that the vendor does not offer: exit 2, the successor, and the command that uses it", async () => {
    const vendor = await startVendor({ "gpt-image-2.5-flare": null });
    for (const args of [
      [...SUBMIT, "--max-cost", "1"],
      SUBMIT,
      ["generate", "a fox"],
      ["generate", "--file", "p.jsonl", "-o", "out"],
    ]) {
      const { code, stderr } = await run(...args);
      expect([args, code]).toEqual([args, 2]);
      expect(stderr).toContain("openai does not offer gpt-image-2 any more. Nothing was sent.");
      expect(stderr).toMatch(
        /\nuse gpt-image-2.5-flare \(\$0.013 an image instead of \$0.053\):\nnext: imgbatch .* --model gpt-image-2.5-flare\n/,
      );
      expect(existsSync(join(cwd, "out"))).toBe(false);
    }
    expect(vendor.paid).toEqual([]);
    const { code } = await run(...SUBMIT, "--max-cost", "1", "--model", "gpt-image-2.5-flare");
    expect([code, vendor.paid]).toEqual([0, ["gpt-image-2.5-flare"]]);
  });

  it("asks on a terminal whether to use the successor", async () => {
    const vendor = await startVendor({ "gpt-image-2.5-flare": null });
    const no = await runOnTerminal("n\n", withData([...SUBMIT, "--max-cost", "1"]), cwd);
    expect([no.code, vendor.paid]).toEqual([2, []]);
    expect(no.stderr).toContain("Use gpt-image-2.5-flare ($0.013 an image instead of $0.053) instead? [y/N]");
    const yes = await runOnTerminal("y\n", withData([...SUBMIT, "--max-cost", "1"]), cwd);
    expect([yes.code, vendor.paid]).toEqual([0, ["gpt-image-2.5-flare"]]);
  });

  it("[VENDOR-2] keeps the model of its directory: what is made is fetched, and nothing more is paid when the list has lost it", async () => {
    const vendor = await startVendor({ "gpt-image-2": null });
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(0);
    expect(vendor.paid).toEqual(["gpt-image-2"]);
    vendor.list = { "gpt-image-2.5-flare": null };
    expect((await run(...SUBMIT)).code).toBe(0);
    // The list of the hour still has it, and the vendor answers for itself.
    expect((await run("generate", "a hen", "--max-cost", "1")).code).toBe(0);
    vi.stubEnv("XDG_CACHE_HOME", await tempDir());
    const again = await runOnTerminal("y\n", withData([...SUBMIT, "--new", "--max-cost", "1"]), cwd);
    expect(again.code).toBe(2);
    expect(again.stderr).toContain("the directory of a run keeps its model: use --model gpt-image-2.5-flare");
    expect(vendor.paid).toHaveLength(2);
  });

  it("[VENDOR-2] retry, which has no --model, says how to use another model", async () => {
    const vendor = await startVendor({ "gpt-image-2": null });
    writeFileSync(join(cwd, "p.jsonl"), '{"prompt": "a fox [[refuse]]"}');
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(5);
    vendor.list = { "gpt-image-2.5-flare": null };
    vi.stubEnv("XDG_CACHE_HOME", await tempDir());
    const { code, stderr } = await run("retry", "out", "--include-refused", "--max-cost", "1");
    expect([code, vendor.paid]).toEqual([2, []]);
    expect(stderr).toContain("use --model gpt-image-2.5-flare with another --output of `imgbatch submit`\n");
  });

  it("asks the vendor again before it refuses: within the hour the model may have come back", async () => {
    const vendor = await startVendor({ "gpt-image-2.5-flare": null });
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(2);
    vendor.list = { "gpt-image-2": null };
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(0);
    const { lists } = vendor;
    expect((await run("submit", "p.jsonl", "-o", "other", "--new", "--max-cost", "1")).code).toBe(0);
    expect(vendor.lists).toBe(lists);
  });

  it("goes on with a note when the list cannot be read, unless the model's day has passed", async () => {
    const vendor = await startVendor({});
    vendor.list = null;
    const { code, stderr } = await run(...SUBMIT, "--max-cost", "1");
    expect([code, vendor.paid]).toEqual([0, ["gpt-image-2"]]);
    expect(stderr).toContain(
      "the list of models could not be read, so it is not known whether gpt-image-2 is",
    );
    const old = ["--model", "gpt-image-1", "--unit-cost", "0.05", "--max-cost", "1", "-o", "old"];
    const ended = await run("submit", "p.jsonl", ...old);
    expect([ended.code, vendor.paid.length]).toEqual([2, 1]);
    expect(ended.stderr).toContain("openai does not offer gpt-image-1 any more (it ended on 2026-10-23)");
  });

  it("says when its model ends within 30 days, by the vendor's day, and when that day has passed", async () => {
    const vendor = await startVendor({ "gpt-image-2": inDays(20), "gpt-image-2.5-flare": null });
    const { code, stderr } = await run(...SUBMIT, "--max-cost", "1");
    expect([code, stderr]).toEqual([
      0,
      expect.stringContaining(
        `openai ends gpt-image-2 on ${inDays(20)}; in its place: gpt-image-2.5-flare\n`,
      ),
    ]);
    vendor.list = { "gpt-image-2": inDays(-3) };
    vi.stubEnv("XDG_CACHE_HOME", await tempDir());
    const late = await run("generate", "a hen", "--max-cost", "1");
    expect([late.code, late.stderr]).toEqual([
      0,
      expect.stringContaining(`openai still offers gpt-image-2, which was to end on ${inDays(-3)}`),
    ]);
    vendor.list = { "gpt-image-2": inDays(40) };
    vi.stubEnv("XDG_CACHE_HOME", await tempDir());
    expect((await run("generate", "a cat", "--max-cost", "1")).stderr).not.toContain("ends gpt-image-2");
  });

  it("[VENDOR-3] needs a price for a model that has none here, and 0 is none", async () => {
    const vendor = await startVendor({ "gpt-image-2.6-flare": null });
    const model = ["--model", "gpt-image-2.6-flare", "--max-cost", "1"];
    const unpriced = await run(...SUBMIT, ...model);
    expect([unpriced.code, unpriced.stderr]).toEqual([
      2,
      expect.stringContaining("--model ID --unit-cost USD"),
    ]);
    const free = await run(...SUBMIT, ...model, "--unit-cost", "0");
    expect([free.code, free.stderr]).toEqual([2, expect.stringContaining("is 0, and openai is not free")]);
    expect(vendor.paid).toEqual([]);
    for (const args of [SUBMIT, ["generate", "a fox"]])
      expect((await run(...args, ...model, "--unit-cost", "0.04")).code).toBe(0);
    expect(vendor.paid).toEqual(["gpt-image-2.6-flare", "gpt-image-2.6-flare"]);
  });

  it("[LINE-1] asks for consent to the sum of the images' own prices, and says their qualities", async () => {
    const vendor = await startVendor({ "gpt-image-2": null, "gpt-image-2.5-flare": null });
    const lines = [{ quality: "low" }, { quality: "high" }, {}, { model: "gpt-image-2.5-flare" }];
    writeFileSync(
      join(cwd, "p.jsonl"),
      lines.map((line) => JSON.stringify({ prompt: "a fox", ...line })).join("\n"),
    );
    const { code, stderr } = await run(...SUBMIT);
    expect([code, stderr]).toEqual([
      8,
      expect.stringContaining(
        "4 images with gpt-image-2, gpt-image-2.5-flare (quality low, high, medium) cost real money: $0.006 to $0.211 each",
      ),
    ]);
    expect((await run(...SUBMIT, "--dry-run")).stdout).toContain(
      "  1 image, gpt-image-2, 1K, quality medium: $0.053 each\n",
    );
    expect((await run(...SUBMIT, "--max-cost", "0.28")).code).toBe(8);
    expect(vendor.paid).toEqual([]);
    const made = await run(...SUBMIT, "--max-cost", "0.29", "--json");
    expect(made.json().actual_cost).toBe(0.283);
    expect(vendor.paid.sort()).toEqual([...Array(3).fill("gpt-image-2"), "gpt-image-2.5-flare"]);
  });

  it("shows an old price with its day where consent is asked", async () => {
    await startVendor({ "gpt-image-2": null, "gpt-image-2.5-flare": null, "gpt-image-9": null });
    const { code, stderr } = await run(...SUBMIT);
    expect([code, stderr]).toEqual([
      8,
      expect.stringContaining("$0.053 each (price of 2026-04), up to $0.06"),
    ]);
    const low = await run(...SUBMIT, "--max-cost", "0.01");
    expect(low.stderr).toContain("more than --max-cost $0.01 (price of 2026-04); nothing was sent");
    const own = await run(...SUBMIT, "--model", "gpt-image-9", "--unit-cost", "0.07");
    expect(own.stderr).toContain("$0.07 each, up to $0.07");
  });
});

describe("imgbatch models --upstream", () => {
  it("shows each model once: offered, not any more, and not known here with the flags that use it", async () => {
    const vendor = await startVendor({ "gpt-image-2": "2027-02-01", "gpt-image-9": null, "gpt-9": null });
    const { code, stdout, json } = await run("models", "--upstream", "openai", "--json");
    expect(code).toBe(0);
    expect(stdout).not.toContain(KEY);
    const { models, ...rest } = json() as { models?: unknown };
    expect(rest).toMatchObject({ upstream: "openai", default: "gpt-image-2" });
    expect(models).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          ...{
            id: "gpt-image-2",
            state: "offered",
            is_default: true,
            prices: { "1K": 0.053, "2K": 0.13, "4K": 0.2 },
          },
          ...{ as_of: "2026-04", retires: "2027-02-01", use: null },
        }),
        expect.objectContaining({
          ...{ id: "gpt-image-2.5-flare", state: "gone", successor: "gpt-image-2" },
        }),
        expect.objectContaining({
          ...{ id: "gpt-image-9", state: "new", prices: null },
          use: "--model gpt-image-9 --unit-cost USD",
        }),
      ]),
    );
    const ids = (models as { id: string }[]).map(({ id }) => id);
    expect(ids).not.toContain("gpt-9");
    expect(new Set(ids).size).toBe(ids.length);
    const table = await run("models", "--upstream", "openai");
    expect(table.stdout).toMatch(
      /^gpt-image-2 \(default\) +offered +2027-02-01 +1K \$0\.053, 2K \$0\.13, 4K \$0\.20 \(2026-04\)/m,
    );
    expect(table.stdout).toMatch(
      /^gpt-image-9 +offered, not known here .*--model gpt-image-9 --unit-cost USD$/m,
    );
    expect(vendor.lists).toBe(2);
  });

  it("ends with 4 when the default is not offered, 3 without the key, 7 when the vendor does not answer", async () => {
    const vendor = await startVendor({ "gpt-image-2.5-flare": null });
    const gone = await run("models", "--upstream", "openai");
    expect([gone.code, gone.stderr]).toEqual([4, expect.stringContaining("--model gpt-image-2.5-flare")]);
    vendor.list = null;
    expect((await run("models", "--upstream", "openai")).code).toBe(7);
    vi.stubEnv("OPENAI_API_KEY", "");
    const keyless = await run("models", "--upstream", "openai");
    expect([keyless.code, keyless.stderr]).toEqual([3, expect.stringContaining("OPENAI_API_KEY is not set")]);
    const local = await runInProcess(["models", "--upstream", "sdapi"], { cwd: await tempDir() });
    expect([local.code, local.stdout]).toEqual([0, expect.stringContaining("known here")]);
  });
});

describe("the configured models beside the vendor's list", () => {
  const examine = async (...args: string[]) => {
    const { code, stdout, json } = await run(...args);
    return { code, stdout, json };
  };

  it("doctor fails for a default that is gone, and warns for others and for one that ends soon", async () => {
    const vendor = await startVendor({ "gpt-image-2": inDays(10) });
    const { code, stdout } = await examine("doctor");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^warn +model +openai: gpt-image-2 ends on \d{4}-\d\d-\d\d$/m);
    expect(stdout).toMatch(
      /^warn +model +openai: gpt-image-2\.5-flare is not offered any more\n +-> use --model /m,
    );
    // That it has ended is known, and nobody has configured it.
    expect(stdout).not.toContain("gpt-image-1 is");
    vendor.list = { "gpt-image-2.5-flare": null };
    const gone = await examine("doctor", "--json");
    expect(gone.code).toBe(2);
    const found = (gone.json() as { findings?: { check: string; state: string; message: string }[] })
      .findings;
    expect(found).toContainEqual(
      expect.objectContaining({
        ...{ check: "model", state: "fail", exit: "usage" },
        message: "openai: gpt-image-2 is not offered any more",
        advice: "use --model gpt-image-2.5-flare",
      }),
    );
    vendor.list = null;
    expect((await examine("doctor")).stdout).not.toMatch(/^\w+ +model /m);
  });

  it("providers --probe names them below their provider", async () => {
    await startVendor({ "gpt-image-2": null, "gpt-image-2.5-sunburst": null });
    const { stdout } = await examine("providers", "--probe");
    expect(stdout).toMatch(/^ {2}gpt-image-2\.5-flare .*not offered any more.*; in its place: gpt-image-2$/m);
    expect(stdout).not.toMatch(/^ {2}gpt-image-2 /m);
    const probed = await examine("providers", "--probe", "--json");
    const [provider] = (probed.json() as { providers?: { probe: object }[] }).providers ?? [];
    expect(provider?.probe).toMatchObject({
      ok: true,
      models_missing: expect.arrayContaining(["gpt-image-2.5-flare"]),
    });
    expect((await examine("providers")).stdout).not.toContain("not offered");
  });
});

it("models MODEL says what the model takes: sizes and qualities with prices, pixels, ratios, background, seed, references", async () => {
  const cwd = await tempDir();
  writeFileSync(join(cwd, "openai.json"), JSON.stringify({ providers: [{ preset: "openai" }] }));
  vi.stubEnv("OPENAI_API_KEY", "any");
  const models = (...args: string[]) =>
    runInProcess(["models", ...args, "--config", "openai.json", "--data", join(cwd, "data")], { cwd });
  const { code, stdout } = await models("gpt-image-2");
  expect(code).toBe(0);
  expect(stdout.split("\n")).toEqual([
    "gpt-image-2  $0.053",
    "  quality low: 1K $0.006, 2K $0.015, 4K $0.023",
    "  quality medium (default): 1K $0.053, 2K $0.13, 4K $0.20",
    "  quality high: 1K $0.211, 2K $0.515, 4K $0.80",
    "  quality auto: 1K $0.211, 2K $0.515, 4K $0.80",
    expect.stringMatching(/^ {2}pixels: sides that are multiples of 16, /),
    expect.stringMatching(/^ {2}aspect ratios: 1:1, /),
    "  background: opaque, auto",
    "  no seed",
    "  no negative prompt",
    "  reference images: up to 16",
    "",
  ]);
  expect((await models("gpt-image-2", "--json")).json().models).toMatchObject([{ id: "gpt-image-2" }]);
  // A program that reads the list gets a line for each model.
  expect((await models()).stdout.split("\n")).toContain("gpt-image-2  $0.053");
  expect((await models()).stdout).not.toContain("aspect ratios");
  const unknown = await models("gpt-image-9");
  expect([unknown.code, unknown.stderr]).toEqual([
    2,
    expect.stringMatching(/"gpt-image-9" here: .*gpt-image-2/),
  ]);
  expect((await models("gpt-image-2", "--upstream", "openai")).code).toBe(2);
});
