import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { runInProcess, runOnTerminal } from "../support/cli-in-process.ts";
import { FakeUpstream } from "../support/fake-provider.ts";
import { BIN, cleanEnvironment, imgbatch } from "../support/processes.ts";
import { openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { PNG } from "../support/upstream-adapter.ts";

/** Makes an image, and notes that it was asked; prompts with `bad` are refused as long as the file `refusing` exists. */
const PROGRAM = `
prompt=$(cat "$2")
echo "$prompt" >> "$1/bill"
case $prompt in *bad*) [ ! -e "$1/refusing" ] || exit 1;; esac
cp "$1/picture" "$3"
`;

/** The price of one image: in a batch, with its hold, and in real time. */
const [PRICE, HOLD] = [100_000, 120_000];
const PLAY = 1_000_000_000;
/** Naming the file is the consent to its program. */
const CONFIG = ["--config", "imgbatch.config.json"];
const SUBMIT = ["submit", "p.jsonl", "-o", "out"];

let cwd: string;
let data: string;
beforeEach(async () => {
  cwd = await tempDir();
  data = join(cwd, "data");
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  writeFileSync(join(cwd, "p.jsonl"), '{"prompt": "good one"}\n{"prompt": "a bad one"}\n');
  writeFileSync(join(cwd, "program"), PROGRAM);
  writeFileSync(join(cwd, "picture"), PNG);
  useProgram();
});

/** The configuration of a program whose images cost real money, unless they are free. */
function useProgram(free = false): void {
  const argv = ["sh", join(cwd, "program"), cwd, "{prompt_file}", "{output}"];
  const config = {
    models: [{ id: "mine", sizes: ["1K"], prices: { "1K": 0.2 } }],
    providers: [{ name: "program", type: "command", argv, free }],
  };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify(config));
}

const run = (...args: string[]) => runInProcess([...CONFIG, ...args, "--data", data], { cwd });

/** Runs a command on a terminal whose person answers so. */
const onTerminal = (answer: string, ...args: string[]) =>
  runOnTerminal(answer, [...CONFIG, ...args, "--data", data], cwd);

/** The prompts that were paid for. */
const bill = () =>
  existsSync(join(cwd, "bill")) ? readFileSync(join(cwd, "bill"), "utf8").trim().split("\n").sort() : [];

async function books() {
  const { stores, blobs } = await openBeside(data);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  const accounts = await stores.read.accounts.list();
  const entries = await stores.read.ledger.list({});
  return {
    batches: (await stores.read.batches.all()).length,
    balances: Object.fromEntries(accounts.map(({ name, balanceMicroUsd }) => [name, balanceMicroUsd])),
    moved: entries.map(({ kind, amountMicroUsd }) => [kind, amountMicroUsd]),
  };
}

describe("consent to real money", () => {
  it("[RUN-26] the same submit makes failed images again, with consent; without it they stay", async () => {
    const refusing = join(cwd, "refusing");
    writeFileSync(refusing, "");
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(4);
    rmSync(refusing);
    const before = bill();
    const without = await run(...SUBMIT);
    expect([without.code, without.stderr]).toEqual([
      4,
      expect.stringMatching(
        /1 failed image left as before: [\s\S]*to agree:\nnext: imgbatch .*submit p\.jsonl .*--max-cost 0\.12/,
      ),
    ]);
    expect((await run(...SUBMIT, "--max-cost", "1", "--no-retry")).code).toBe(4);
    expect((await run(...SUBMIT, "--max-cost", "1", "--dry-run")).stdout).toMatch(
      /1 failed image made again \(--no-retry leaves them\)\n {2}1 image, .*: \$0\.10 each\nestimated cost \$0\.10\n/,
    );
    expect(bill()).toEqual(before);
    const repaired = await run(...SUBMIT, "--max-cost", "1");
    expect([repaired.code, repaired.stderr]).toEqual([
      0,
      expect.stringContaining("2 of 2 images on disk and verified, 1 of them fetched now; $0.10 now ($0.10"),
    ]);
    expect(bill()).toEqual([...before, "a bad one"].sort());
    expect((await run(...SUBMIT)).code).toBe(0);
    expect(bill()).toHaveLength(before.length + 1);
  });

  it("[RUN-26] failed images are made again in batches as large as the service takes", async () => {
    const path = join(cwd, "imgbatch.config.json");
    writeFileSync(
      path,
      JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), limits: { itemsPerBatch: 2 } }),
    );
    writeFileSync(join(cwd, "p.jsonl"), JSON.stringify({ prompt: "a bad one", output_count: 3 }));
    writeFileSync(join(cwd, "refusing"), "");
    const first = await run(...SUBMIT, "--max-cost", "1");
    expect(first.code, first.stderr).toBe(5);
    const before = bill().length;
    rmSync(join(cwd, "refusing"));
    const repaired = await run(...SUBMIT, "--max-cost", "1");
    expect([repaired.code, bill().length], repaired.stderr).toEqual([0, before + 3]);
  });

  it("[RUN-8] a paid batch whose answer was lost needs no second consent, and what is still to be paid does", async () => {
    expect((await run(...SUBMIT, "--max-cost", "1")).code).toBe(0);
    const before = bill();
    const path = join(cwd, "out/imgbatch.json");
    const state = JSON.parse(readFileSync(path, "utf8"));
    const [{ id }] = state.batches;
    Object.assign(state.batches[0], { id: null, state: "unknown", status: null });
    const lose = () => writeFileSync(path, JSON.stringify({ ...state, finished_at: null }));
    lose();
    const found = await run(...SUBMIT);
    expect([found.code, found.stderr]).toEqual([0, expect.stringContaining(`re-using ${id}`)]);
    expect(bill()).toEqual(before);
    // A batch that the service does not know would be paid.
    state.batches[0].idempotency_key = "another";
    lose();
    expect((await run(...SUBMIT)).code).toBe(8);
    expect(bill()).toEqual(before);
  });

  it("[CONSENT-8] [DOCTOR-2] a run without it ends with 8, sends nothing, and prints the command that agrees", async () => {
    for (const [args, usd] of [
      [SUBMIT, "0.24"],
      [["generate", "a fox"], "0.20"],
      [["generate", "--file", "p.jsonl", "-o", "out"], "0.40"],
    ] as const) {
      const { code, stderr } = await run(...args);
      expect([args, code, stderr]).toEqual([args, 8, expect.stringMatching(/costs? real money/)]);
      const again = [...CONFIG, ...args, "--data", data, "--max-cost", usd].map((word) =>
        word.replace(/^(.* .*)$/, "'$1'"),
      );
      expect(stderr).toContain(`to agree:\nnext: imgbatch ${again.join(" ")}\n`);
      const isHalf = stderr.includes("the group default charges half of what program bills for an image");
      expect([args, isHalf]).toEqual([args, args === SUBMIT]);
      const low = await run(...args, "--max-cost", "0.19");
      expect([low.code, low.stderr]).toEqual([8, expect.stringContaining(`--max-cost ${usd}\n`)]);
    }
    expect(await books()).toEqual({ batches: 0, balances: { default: 0 }, moved: [] });
    expect(bill()).toEqual([]);
    const dry = await run(...SUBMIT, "--dry-run");
    expect([dry.code, dry.stderr]).toEqual([
      0,
      expect.stringMatching(/next: imgbatch .*submit p\.jsonl .*--max-cost 0\.24\n$/),
    ]);
  });

  it("[CONSENT-8] --max-cost agrees: a run, its retry; running it again needs no consent", async () => {
    writeFileSync(join(cwd, "refusing"), "");
    expect((await run(...SUBMIT, "--max-cost", "0.24")).code).toBe(4);
    const first = [
      ["grant", 2 * HOLD],
      ["hold", 2 * HOLD],
      ["capture", PRICE],
      ["release", 2 * HOLD - PRICE],
      ["take_back", 2 * HOLD - PRICE],
    ];
    expect((await books()).moved).toEqual(first);
    expect((await run(...SUBMIT)).code).toBe(4);
    const retry = await run("retry", "out");
    expect([retry.code, retry.stderr]).toEqual([8, expect.stringContaining("--max-cost 0.12\n")]);
    rmSync(join(cwd, "refusing"));
    expect((await run("retry", "out", "--max-cost", "0.12")).code).toBe(0);
    expect(await books()).toMatchObject({ batches: 2, balances: { default: 0 } });
    expect((await run(...SUBMIT)).code).toBe(0);
    expect((await run("retry", "out")).code).toBe(0);
  });

  it("after the data of the service are gone, only a lost image is made again, with consent", async () => {
    expect((await run(...SUBMIT, "--max-cost", "0.24")).code).toBe(0);
    rmSync(data, { recursive: true });
    expect((await run(...SUBMIT)).code).toBe(0);
    expect(existsSync(data)).toBe(false);
    expect((await run("status", "out")).code).toBe(0);
    rmSync(join(cwd, "out", "images", "item_000001-good-one.png"));
    const lost = await run(...SUBMIT);
    expect([lost.code, lost.stderr]).toEqual([10, expect.stringContaining(`service in ${data} are new`)]);
    const again = ["retry", "out", "--include-lost", "--here"];
    const refused = await run(...again);
    expect([refused.code, refused.stderr]).toEqual([8, expect.stringContaining("--max-cost 0.12\n")]);
    expect(bill()).toEqual(["a bad one", "good one"]);
    expect((await run(...again, "--max-cost", "0.12")).code).toBe(0);
    expect((await run(...again)).code).toBe(0);
    expect((await run(...SUBMIT)).code).toBe(0);
    expect(bill()).toEqual(["a bad one", "good one", "good one"]);
    expect(await books()).toMatchObject({ batches: 1, balances: { default: 0 } });
  });

  it("[CONSENT-8] --max-cost agrees: real-time images, one consent for a whole file", async () => {
    expect((await run("generate", "a fox", "--max-cost", "0.2")).code).toBe(0);
    const file = ["generate", "--file", "p.jsonl", "-o", "out"];
    expect((await run(...file, "--max-cost", "0.40")).code).toBe(0);
    expect((await run(...file)).code).toBe(0);
    expect(bill()).toEqual(["a bad one", "a fox", "good one"]);
    const { balances, moved } = await books();
    expect(balances).toEqual({ default: 0 });
    expect(moved.filter(([kind]) => kind === "grant")).toEqual(Array(3).fill(["grant", 200_000]));
  });

  it("on a terminal a yes agrees, and anything else sends nothing", async () => {
    for (const answer of ["n\n", "\n", ""]) {
      const { code, stderr } = await onTerminal(answer, ...SUBMIT);
      expect([answer, code]).toEqual([answer, 8]);
      expect(stderr).toContain(
        "2 images with mine cost real money: $0.12 each, up to $0.24 in all. Pay that?",
      );
    }
    expect(bill()).toEqual([]);
    expect((await onTerminal("y\n", ...SUBMIT)).code).toBe(0);
    expect((await books()).moved[0]).toEqual(["grant", 2 * HOLD]);
    expect((await onTerminal("", ...SUBMIT)).stderr).not.toContain("Pay that?");
  });

  it("is needed for a shared service, and not for drawings or free images", async () => {
    useProgram(true);
    expect((await run(...SUBMIT)).code).toBe(0);
    expect((await books()).moved.every(([, amount]) => amount === 0)).toBe(true);
    useProgram();
    const config = JSON.parse(readFileSync(join(cwd, "imgbatch.config.json"), "utf8"));
    const service = await startTestService({ data, config, providers: [new FakeUpstream("program")] });
    const other = ["submit", "p.jsonl", "-o", "other", "--new"];
    expect((await run(...other)).code).toBe(8);
    expect((await run(...other, "--max-cost", "1")).code).toBe(0);
    await service.close(0);
  });
});

describe("consent, in processes of its own", () => {
  const env = cleanEnvironment();

  it("[CONSENT-8] drawings, a refused run, a paid one, and drawings again", async () => {
    writeFileSync(join(cwd, "drawn.json"), "{}");
    const draw = (dir: string) => run("submit", "p.jsonl", "-o", dir, "--config", "drawn.json", "--new");
    expect((await draw("drawn")).code).toBe(0);
    const before = await books();
    const none = await run(...SUBMIT);
    expect([none.code, none.stderr]).toEqual([8, expect.stringContaining("--max-cost 0.24")]);
    expect((await books()).batches).toBe(1);
    expect((await run(...SUBMIT, "--max-cost", "0.23")).code).toBe(8);
    const paying = [...CONFIG, ...SUBMIT, "--max-cost", "0.24", "--data", data];
    expect((await imgbatch(paying, { cwd, env })).code).toBe(0);
    const paid = await books();
    expect(paid.moved.slice(before.moved.length)).toEqual([
      ["grant", 2 * HOLD],
      ["hold", 2 * HOLD],
      ["capture", 2 * PRICE],
      ["release", 2 * (HOLD - PRICE)],
      ["take_back", 2 * (HOLD - PRICE)],
    ]);
    expect((await draw("drawn-2")).code).toBe(0);
    const { balances } = await books();
    const drawn = PLAY - (before.balances.default ?? 0);
    expect(balances).toEqual({ default: PLAY - 2 * drawn, "default (real)": 0 });
  });

  it("exec --max-cost is the budget of all that the command makes", async () => {
    const script = `
      import { spawnSync } from "node:child_process";
      const run = (...args) => spawnSync(process.execPath, [${JSON.stringify(BIN)}, ...args], { encoding: "utf8" });
      const codes = process.argv.slice(2).map((name) => run("generate", name, "-o", name + ".png", "--force", "--max-cost", "9").status);
      console.log(JSON.stringify(codes));`;
    writeFileSync(join(cwd, "children.mjs"), script);
    const children = ["--", process.execPath, "children.mjs"];
    const exec = (...args: string[]) => imgbatch([...CONFIG, "exec", ...args], { cwd, env });
    expect(JSON.parse((await exec("--max-cost", "0.35", ...children, "a", "b")).stdout)).toEqual([0, 8]);
    expect(JSON.parse((await exec(...children, "a")).stdout)).toEqual([8]);
    expect(bill()).toEqual(["a"]);
    const both = await runInProcess([...CONFIG, "exec", "--max-cost", "1", "--data", data, ...children], {
      cwd,
    });
    expect([both.code, both.stderr]).toEqual([2, expect.stringContaining("leave out --data")]);
  });
});

it("drawings are free, also when the first command on a machine names an upstream, and after a top-up", async () => {
  expect((await run(...SUBMIT, "--dry-run")).code).toBe(0);
  const empty = await tempDir();
  const drawing = (...args: string[]) => runInProcess([...args, "--data", data], { cwd: empty });
  writeFileSync(join(empty, "p.jsonl"), '{"prompt": "good one"}\n');
  expect((await run("admin", "accounts", "list", "--json")).json()).toMatchObject([{ balance: 0 }]);
  expect(await drawing("submit", "p.jsonl", "-o", "out")).toMatchObject({
    code: 0,
    stderr: expect.stringContaining("drawn, free of charge"),
  });
  expect((await run("admin", "accounts", "top-up", "default", "5")).code).toBe(0);
  expect((await drawing("submit", "p.jsonl", "-o", "out", "--new")).code).toBe(0);
  expect((await drawing("generate", "a fox", "-o", "fox.png")).code).toBe(0);
  expect((await books()).balances).toEqual({ default: 5_000_000 });
});

it("drawings are free of charge in all words of the commands, and have their amounts in --json", async () => {
  writeFileSync(join(cwd, "imgbatch.config.json"), "{}");
  writeFileSync(join(cwd, "one.txt"), "a fox\n");
  const commands = [
    [...SUBMIT, "--dry-run"],
    [...SUBMIT, "--markdown", "run.md", "--junit", "run.xml"],
    [...SUBMIT],
    ["status", "out"],
    ["retry", "out", "--dry-run"],
    ["models"],
    ["models", "--realtime"],
    ["generate", "a fox", "-o", "fox.png"],
    ["generate", "--file", "one.txt", "-o", "drawn"],
    ["providers"],
  ];
  for (const command of commands) {
    const { code, stdout, stderr } = await run(...command);
    expect([command, code, stdout + stderr]).toEqual([
      command,
      0,
      expect.stringContaining("drawn, free of charge"),
    ]);
    expect(stdout + stderr).not.toContain("$");
  }
  for (const report of ["run.md", "run.xml", "out/index.html", "drawn/index.html"])
    expect([report, readFileSync(join(cwd, report), "utf8")]).toEqual([
      report,
      expect.stringContaining("drawn, free of charge"),
    ]);
  expect((await run("admin", "accounts", "list")).stdout).toContain("in play money");
  const shown = [await run(...SUBMIT, "--json"), await run("generate", "a cat", "-o", "cat.png", "--json")];
  expect(shown.map(({ json }) => json())).toMatchObject([
    { actual_cost: 0.067, play_money: true, batches: [{ actual_cost: 0.067, play_money: true }] },
    { cost: 0.067, play_money: true },
  ]);
  const refused = await run("submit", "one.txt", "-o", "other", "--max-cost", "0.01");
  expect(refused).toMatchObject({ code: 8, stderr: expect.stringContaining("leave out --max-cost") });
  expect(refused.stderr).not.toContain("$");
});
