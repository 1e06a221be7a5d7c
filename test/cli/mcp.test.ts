import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { readdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FakeUpstream } from "../support/fake-provider.ts";
import { BIN, cleanEnvironment } from "../support/processes.ts";
import { allowKeyFile, watchText } from "../support/secrets.ts";
import { openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { PNG } from "../support/upstream-adapter.ts";

/** Notes that it was asked, and makes an image once no file `wait` exists. */
const PROGRAM = `
cat "$2" >> "$1/bill"; echo >> "$1/bill"
while [ -e "$1/wait" ]; do sleep 0.02; done
cp "$1/picture" "$3"
`;
/** One image: in a batch, held for it, and in real time. */
const [PRICE, HOLD, NOW] = [0.1, 0.12, 0.2];

let outside: string;
let root: string;
beforeEach(async () => {
  outside = await realpath(await tempDir());
  root = join(outside, "root");
  mkdirSync(root);
  write("p.jsonl", '{"prompt": "one", "custom_id": "a"}\n{"prompt": "two", "custom_id": "b"}\n');
});

const path = (...names: string[]) => join(root, ...names);
const write = (name: string, text: string | Buffer) => writeFileSync(path(name), text);

/** Makes the images of this test with a program, for real money. */
function useProgram(): string[] {
  write("program", PROGRAM);
  write("picture", PNG);
  const argv = ["sh", path("program"), root, "{prompt_file}", "{output}"];
  const provider = { name: "program", type: "command", argv, concurrency: 1 };
  const models = [{ id: "mine", sizes: ["1K"], prices: { "1K": NOW } }];
  write("imgbatch.config.json", JSON.stringify({ models, providers: [provider] }));
  // Naming the file is the consent to its program.
  return ["--config", "imgbatch.config.json"];
}

/** The prompts that were paid for. */
const bill = () =>
  existsSync(path("bill")) ? readFileSync(path("bill"), "utf8").trim().split("\n").sort() : [];

interface Told {
  isError: boolean;
  json: Record<string, never> & { error: { code: string; message: string }; next: string };
  pictures: { mimeType: string; data: string }[];
  text: string;
}

type CallOptions = Parameters<Client["callTool"]>[1];

/** A client of the real program over a real pipe. */
async function start(...args: string[]) {
  const child: ChildProcessWithoutNullStreams = spawn(process.execPath, [BIN, "mcp", ...args], {
    cwd: root,
    env: cleanEnvironment({
      HOME: join(outside, "home"),
      IMGBATCH_DATA: join(outside, "data"),
      GEMINI_API_KEY: "",
    }),
  });
  let errors = "";
  child.stderr.on("data", (data) => {
    errors += data;
  });
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioServerTransport(child.stdout, child.stdin));
  const kill = async () => {
    child.kill("SIGKILL");
    await exited;
  };
  onTestFinished(async () => {
    await kill();
    watchText(errors, "stderr of mcp");
  });
  const call = async (name: string, input: object = {}, options?: CallOptions): Promise<Told> => {
    const answer = await client.callTool({ name, arguments: { ...input } }, options);
    const {
      content,
      isError = false,
      structuredContent,
    } = answer as unknown as {
      content: ({ type: "text"; text: string } | { type: "image"; mimeType: string; data: string })[];
      isError?: boolean;
      structuredContent?: Told["json"];
    };
    const [first] = content;
    const text = first?.type === "text" ? first.text : "";
    watchText(text, `answer of ${name}`);
    const json = structuredContent ?? JSON.parse(text);
    return { isError, json, text, pictures: content.filter((each) => each.type === "image") };
  };
  const until = async (target: string, status = "completed") =>
    vi.waitFor(async () => {
      const { json } = await call("status", { targets: [target] });
      expect((json.batches as unknown as { status: string }[]).map((batch) => batch.status)).toEqual([
        status,
      ]);
      return json;
    }, 20_000);
  /** Closes the client's end, and returns the exit code. */
  const close = () => {
    child.stdin.end();
    return exited;
  };
  return { client, call, until, close, kill, exited, errors: () => errors };
}

const spentOf = ({ json }: Pick<Told, "json">) =>
  (json as unknown as { budget: { spent: number } }).budget.spent;

describe("an agent makes images with tools", { timeout: 60_000 }, () => {
  it("[MCP-1] checks, submits, looks, lists, downloads; a repeated call makes nothing again", async () => {
    const { client, call, until } = await start();
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      ...["check_prompts", "submit", "status", "items", "download", "generate", "retry", "models"],
    ]);
    for (const { inputSchema, outputSchema, annotations, description } of tools)
      expect([inputSchema.type, outputSchema?.type, annotations?.readOnlyHint, description]).toEqual([
        ...["object", "object", expect.any(Boolean), expect.stringMatching(/\.$/)],
      ]);
    const { json: checked } = await call("check_prompts", { files: ["p.jsonl"] });
    expect(checked).toMatchObject({ ok: true, image_count: 2, play_money: true, problems: [] });
    write("bad.jsonl", '{"prompt": ""}\n');
    const { json: bad, isError } = await call("check_prompts", { files: ["bad.jsonl"] });
    expect([isError, bad]).toMatchObject([
      false,
      {
        ok: false,
        error: { code: "INVALID_INPUT" },
        problems: [expect.stringContaining("bad.jsonl:1: prompt")],
      },
    ]);

    const submitted = await call("submit", { files: [path("p.jsonl")] });
    expect(submitted.json).toMatchObject({ ok: true, replayed: false, directory: path("p-images") });
    const [batch] = submitted.json.batches as unknown as { id: string }[];
    const again = await call("submit", { files: ["p.jsonl"] });
    expect(again.json).toMatchObject({ replayed: true, batches: [{ id: batch?.id }] });
    await until("p-images");
    const { json: listed } = await call("items", { target: batch?.id, limit: 1, offset: 1 });
    expect(listed).toMatchObject({ total: 2, items: [{ custom_id: "b", status: "success" }] });
    const { json: fetched, text, pictures } = await call("download", { target: "p-images" });
    expect(fetched).toMatchObject({
      counts: { total: 2, success: 2 },
      contact_sheet: path("p-images", "index.html"),
      items: [
        { files: [path("p-images", "images", "a.png")] },
        { files: [path("p-images", "images", "b.png")] },
      ],
    });
    expect([pictures, text.length < 2000]).toEqual([[], true]);
    expect(await readdir(path("p-images", "images"))).toHaveLength(2);
    const { json: retried } = await call("retry", { directory: "p-images" });
    expect(retried).toMatchObject({ ok: true, notes: expect.arrayContaining(["nothing to retry"]) });
    expect((await (await openBeside(join(outside, "data"))).stores.read.batches.all()).length).toBe(1);
  });

  it("[MCP-1] makes one image; shows pictures of at most 256 px when asked to, and tells its progress", async () => {
    const { call } = await start();
    const fox = { prompt: "a red fox", aspect_ratio: "16:9", previews: true };
    const told: string[] = [];
    const options = { onprogress: ({ message = "" }) => void told.push(message) };
    const made = await call("generate", fox, options);
    expect(made.json).toMatchObject({ ok: true, is_new: true, play_money: true });
    const [item] = made.json.items as unknown as { files: string[] }[];
    expect(existsSync(item?.files[0] ?? "")).toBe(true);
    // A busy machine gives a sign of life before that.
    expect(told.find((message) => message !== "working")).toBe("0 of 1 images made");
    const [picture] = made.pictures;
    expect([made.pictures.length, picture?.mimeType]).toEqual([1, "image/webp"]);
    const { widthPx } = readImageHeader(Buffer.from(picture?.data ?? "", "base64")) ?? {};
    expect(widthPx).toBe(256);
    const again = await call("generate", fox);
    expect(again.json).toMatchObject({ is_new: false, directory: made.json.directory });
    const other = await call("generate", { ...fox, variant: 2 });
    expect(other.json).toMatchObject({ is_new: true });
    expect(other.json.directory).not.toBe(made.json.directory);
    const { json } = await call("models", { realtime: true });
    expect(json.models).toContainEqual(expect.objectContaining({ id: expect.any(String) }));
  });

  it("[MCP-1] an error has its code and the next step", async () => {
    const { call } = await start();
    const { isError, json } = await call("status", { targets: ["imgbatch_0"] });
    expect([isError, json]).toMatchObject([
      true,
      { ok: false, error: { code: "BATCH_IMAGE_NOT_FOUND" }, next: expect.stringContaining("imgbatch") },
    ]);
  });
});

describe("files of an agent lie below the root", { timeout: 60_000 }, () => {
  it("[MCP-2] nothing leads out: not .., not an absolute path, not a link", async () => {
    const line = (image: string) => JSON.stringify({ prompt: "x", reference_images: [image] });
    writeFileSync(join(outside, "secret.png"), PNG);
    writeFileSync(join(outside, "secret.txt"), "secret\n");
    writeFileSync(join(outside, "p.jsonl"), '{"prompt": "secret"}\n');
    symlinkSync(outside, path("link"));
    symlinkSync(join(outside, "secret.png"), path("picture.png"));
    symlinkSync(join(outside, "nothing"), path("dangling"));
    write("inner.png", PNG);
    const { call } = await start();
    const refused = async (name: string, input: object) => {
      const { json, text } = await call(name, input);
      expect([name, input, json.error?.code]).toEqual([name, input, "OUTSIDE_ROOT"]);
      expect(json.next).toContain("--root DIR");
      expect(text).not.toContain("secret\\n");
    };
    for (const out of ["..", outside, "link", "link/new", "../new", join(outside, "new")]) {
      for (const name of ["check_prompts", "submit"])
        await refused(name, { files: ["p.jsonl"], output: out });
      await refused("generate", { prompt: "x", output: out });
      await refused("status", { targets: [out] });
      await refused("items", { target: out });
      await refused("download", { target: "p-images", output: out });
      await refused("retry", { directory: out });
    }
    await refused("submit", { files: ["p.jsonl"], output: "dangling" });
    for (const file of ["../p.jsonl", join(outside, "p.jsonl"), "link/p.jsonl"])
      await refused("submit", { files: [file] });
    for (const list of ["@../secret.txt", `@${join(outside, "secret.txt")}`, "@link/secret.txt"])
      await refused("submit", { files: ["p.jsonl"], variables: { x: list } });
    write("v.jsonl", '{"prompt": "{{x}}"}\n');
    const variables = { x: [`@${join(outside, "secret.txt")}`] };
    await call("submit", { files: ["v.jsonl"], output: "v", variables });
    expect(readFileSync(path("v", "input.jsonl"), "utf8")).toContain(`"prompt":"@${outside}`);
    const named = { [`x=@${outside}/a`]: "/../secret.txt" };
    const wrong = await call("submit", { files: ["v.jsonl"], output: "n", variables: named });
    expect(wrong.json.error.message).toContain(`leads out of ${root}`);
    for (const image of ["../secret.png", join(outside, "secret.png"), "link/secret.png", "picture.png"]) {
      await refused("generate", { prompt: "x", images: [image] });
      await refused("submit", { files: ["p.jsonl"], references: [image] });
      write("r.jsonl", line(image));
      const { json } = await call("submit", { files: ["r.jsonl"] });
      expect(json.error).toMatchObject({
        code: "INVALID_INPUT",
        details: [expect.stringContaining(`${image} leads out of ${root}`)],
      });
    }
    expect(await readdir(root)).not.toContain("p-images");
    for (const image of ["inner.png", path("inner.png"), "link/root/inner.png"]) {
      write("r.jsonl", line(image));
      expect((await call("check_prompts", { files: [path("r.jsonl")] })).json).toMatchObject({ ok: true });
    }
  });

  it("[MCP-2] nothing of imgbatch's own data is read, where they lie below the root", async () => {
    writeFileSync(join(outside, "v.jsonl"), '{"prompt": "{{x}}", "vars": {"x": "@data/credentials.json"}}\n');
    writeFileSync(join(outside, "w.jsonl"), '{"prompt": "{{x}}"}\n');
    const { call } = await start("--root", "..");
    await call("models", {});
    expect(existsSync(join(outside, "data/credentials.json"))).toBe(true);
    const listed = await call("submit", { files: ["v.jsonl"] });
    expect(listed.json.error).toMatchObject({
      code: "INVALID_INPUT",
      details: [expect.stringContaining("data/credentials.json belongs to imgbatch itself")],
    });
    writeFileSync(join(outside, "data/picture.png"), PNG);
    writeFileSync(join(outside, "r.jsonl"), '{"prompt": "x", "reference_images": ["data/picture.png"]}\n');
    expect((await call("check_prompts", { files: ["r.jsonl"] })).json.problems).toEqual([
      "r.jsonl:1: reference_images[0]: data/picture.png belongs to imgbatch itself",
    ]);
    for (const input of [
      { files: ["w.jsonl"], variables: { x: "@data/credentials.json" } },
      { files: ["data/credentials.json"] },
    ])
      expect((await call("submit", input)).json.error.code).toBe("OUTSIDE_ROOT");
    const values = { files: ["w.jsonl"], output: "v", variables: { x: ["back\\", "slash\\,too"] } };
    expect((await call("submit", values)).json.error).toBeUndefined();
    const sent = readFileSync(join(outside, "v", "input.jsonl"), "utf8")
      .trim()
      .split("\n");
    expect(sent.map((line) => JSON.parse(line).prompt)).toEqual(["back\\", "slash\\,too"]);
  });

  it("[MCP-2] no link that takes the place of a run's folder leads its images out", async () => {
    const { call, until } = await start();
    await call("submit", { files: ["p.jsonl"] });
    await until("p-images");
    expect((await call("download", { target: "p-images" })).json.error).toBeUndefined();
    mkdirSync(join(outside, "pictures"));
    rmSync(path("p-images", "images"), { recursive: true });
    symlinkSync(join(outside, "pictures"), path("p-images", "images"));
    for (const [name, input] of [
      ["download", { target: "p-images" }],
      ["submit", { files: ["p.jsonl"] }],
      ["retry", { directory: "p-images", include_lost: true }],
    ] as const)
      expect((await call(name, input)).json.error).toMatchObject({
        code: "DIRECTORY_CONFLICT",
        message: expect.stringContaining('has a link called "images"'),
      });
    expect(await readdir(join(outside, "pictures"))).toEqual([]);
  });
});

describe("a person consents to a total, not the agent", { timeout: 90_000 }, () => {
  it("[MCP-3] without it paid images are refused, with what the person must start", async () => {
    const config = useProgram();
    const { call } = await start(...config);
    for (const [name, input, usd] of [
      ["submit", { files: ["p.jsonl"] }, "0.24"],
      ["generate", { prompt: "x" }, "0.20"],
    ] as const) {
      const { isError, json } = await call(name, input);
      expect([isError, json.error.code]).toEqual([true, "COST_LIMIT"]);
      expect(json.next).toContain(`imgbatch mcp --config imgbatch.config.json --max-cost ${usd}`);
    }
    const { json } = await call("check_prompts", { files: ["p.jsonl"] });
    expect(json).toMatchObject({ estimated_cost: 2 * PRICE, budget: { max_cost: null, spent: 0, left: 0 } });
    expect(bill()).toEqual([]);
  });

  it("[MCP-3] counts what is held, then what was charged, over restarts", async () => {
    const config = useProgram();
    write("wait", "");
    const first = await start(...config, "--max-cost", "0.5");
    expect(spentOf(await first.call("submit", { files: ["p.jsonl"] }))).toBe(2 * HOLD);
    // Held and not spent yet, it is not left for others.
    write("q.jsonl", '{"prompt": "1"}\n{"prompt": "2"}\n{"prompt": "3"}\n');
    const held = await first.call("submit", { files: ["q.jsonl"] });
    expect(held.json.error).toMatchObject({
      code: "COST_LIMIT",
      message: expect.stringContaining("$0.24 of its $0.50"),
    });
    rmSync(path("wait"));
    await first.until("p-images");
    expect(spentOf(await first.call("generate", { prompt: "x" }))).toBeCloseTo(2 * PRICE + NOW);
    expect((await first.call("generate", { prompt: "y" })).json.error.code).toBe("COST_LIMIT");
    await first.kill();

    const second = await start(...config, "--max-cost", "0.5");
    expect((await second.call("generate", { prompt: "x" })).json).toMatchObject({ is_new: false });
    expect((await second.call("submit", { files: ["p.jsonl"] })).json).toMatchObject({ replayed: true });
    expect((await second.call("generate", { prompt: "y" })).json.error.code).toBe("COST_LIMIT");
    expect(await second.close()).toBe(0);
    const third = await start(...config, "--max-cost", "0.6");
    expect(spentOf(await third.call("generate", { prompt: "y" }))).toBeCloseTo(2 * PRICE + 2 * NOW);
    expect(bill()).toEqual(["one", "two", "x", "y"]);
  });

  it("without a key of its upstream a server answers, and makes nothing, not even a data directory", async () => {
    const { call } = await start("--upstream", "google");
    for (const [name, input] of [
      ["submit", { files: ["p.jsonl"] }],
      ["status", { targets: ["imgbatch_0"] }],
    ] as const) {
      const { isError, json } = await call(name, input);
      expect([isError, json.error.code, json.next]).toEqual([
        true,
        "API_KEY_REQUIRED",
        expect.stringContaining("GEMINI_API_KEY"),
      ]);
    }
    expect(existsSync(join(outside, "data"))).toBe(false);
  });

  it("[MCP-3] a service of others that takes real money needs the consent, too", async () => {
    useProgram();
    const config = JSON.parse(readFileSync(path("imgbatch.config.json"), "utf8"));
    const data = join(outside, "there");
    const service = await startTestService({ data, config, providers: [new FakeUpstream("program")] });
    await runInProcess(["admin", "accounts", "top-up", "default", "5", "--data", data], { cwd: outside });
    rmSync(path("imgbatch.config.json"));
    const key = join(outside, "key");
    allowKeyFile(key);
    writeFileSync(key, service.credentials.api_key);
    const there = ["--base-url", service.url, "--api-key-file", key];
    const poor = await start(...there);
    expect((await poor.call("submit", { files: ["p.jsonl"] })).json.error.code).toBe("COST_LIMIT");
    const { call, until } = await start(...there, "--max-cost", "1");
    const { json } = await call("submit", { files: ["p.jsonl"] });
    const [{ id, hold_amount } = { id: "", hold_amount: 0 }] = json.batches as unknown as {
      id: string;
      hold_amount: number;
    }[];
    // It may have ended by now.
    expect([hold_amount, 2 * PRICE]).toContain(spentOf({ json }));
    const done = await until(id);
    expect(spentOf({ json: done })).toBe(
      (done.batches as unknown as { actual_cost: number }[])[0]?.actual_cost,
    );
    expect((await call("submit", { files: ["p.jsonl"] })).json).toMatchObject({ replayed: true });
  });
});

describe("a connection that is lost", { timeout: 120_000 }, () => {
  it("[MCP-4] whenever it is killed, one batch is made, and the total is what it has cost", async () => {
    const config = [...useProgram(), "--max-cost", "0.24"];
    for (const delayMs of [0, 15, 40, 80, 150, 250]) {
      const { call, kill } = await start(...config);
      const lost = call("submit", { files: ["p.jsonl"] }).catch(() => {});
      await new Promise((done) => setTimeout(done, delayMs));
      await kill();
      await Promise.race([lost, new Promise((done) => setTimeout(done, 50))]);
    }
    const { call, until } = await start(...config);
    expect((await call("submit", { files: ["p.jsonl"] })).json).toMatchObject({ ok: true });
    await until("p-images");
    expect(spentOf(await call("submit", { files: ["p.jsonl"] }))).toBe(2 * PRICE);
    expect((await (await openBeside(join(outside, "data"))).stores.read.batches.all()).length).toBe(1);
  });

  it("[MCP-4] two servers share one data directory and one total; when one is killed, the other goes on", async () => {
    const config = [...useProgram(), "--max-cost", "0.44"];
    const first = await start(...config);
    expect((await first.call("check_prompts", { files: ["p.jsonl"] })).json).toMatchObject({ ok: true });
    const second = await start(...config);
    expect((await second.call("generate", { prompt: "x" })).json).toMatchObject({ ok: true });
    expect(spentOf(await first.call("submit", { files: ["p.jsonl"] }))).toBeCloseTo(NOW + 2 * HOLD);
    expect((await second.call("generate", { prompt: "y" })).json.error.code).toBe("COST_LIMIT");
    await first.until("p-images");
    await first.kill();
    expect((await second.call("submit", { files: ["p.jsonl"] })).json).toMatchObject({ replayed: true });
    expect((await second.call("download", { target: "p-images" })).json).toMatchObject({ ok: true });
    expect(bill()).toEqual(["one", "two", "x"]);
  });

  it("[MCP-5] when the client closes its end, the paid request is waited for and no other begins; the next start goes on when the run is named", async () => {
    const config = useProgram();
    write("wait", "");
    const first = await start(...config, "--max-cost", "1");
    await first.call("submit", { files: ["p.jsonl"] });
    await vi.waitFor(() => expect(bill()).toEqual(["one"]), 10_000);
    const ending = first.close();
    await new Promise((done) => setTimeout(done, 500));
    rmSync(path("wait"));
    expect(await ending).toBe(0);
    expect(bill()).toEqual(["one"]);
    const second = await start(...config, "--max-cost", "1");
    expect((await second.call("status", { targets: ["p-images"] })).json).toMatchObject({
      batches: [{ waiting: { code: "STOPPED" } }],
    });
    expect(bill()).toEqual(["one"]);
    await second.call("submit", { files: ["p.jsonl"] });
    await second.until("p-images");
    expect(bill()).toEqual(["one", "two"]);
    expect(spentOf(await second.call("check_prompts", { files: ["p.jsonl"] }))).toBe(2 * PRICE);
  });

  it("[MCP-5] an image that is being made now is kept for the repeated call", async () => {
    const config = [...useProgram(), "--max-cost", "1"];
    write("wait", "");
    const first = await start(...config);
    first.call("generate", { prompt: "x" }).catch(() => {});
    await vi.waitFor(() => expect(bill()).toEqual(["x"]), 10_000);
    const ending = first.close();
    await new Promise((done) => setTimeout(done, 500));
    rmSync(path("wait"));
    expect(await ending).toBe(0);
    const second = await start(...config);
    expect((await second.call("generate", { prompt: "x" })).json).toMatchObject({ ok: true, is_new: false });
    expect(bill()).toEqual(["x"]);
  });
});

it("init --template mcp adds the server to .mcp.json without a total, and keeps others", async () => {
  const init = () => runInProcess(["init", ".", "--template", "mcp"], { cwd: root });
  expect((await init()).stdout).toBe(".mcp.json\n");
  const imgbatch = { command: "imgbatch", args: ["mcp"] };
  expect(JSON.parse(readFileSync(path(".mcp.json"), "utf8"))).toEqual({ mcpServers: { imgbatch } });
  expect((await init()).stdout).toBe("");
  write(".mcp.json", '{"mcpServers": {"other": {"command": "other"}}, "more": 1}');
  await init();
  const both = { more: 1, mcpServers: { other: { command: "other" }, imgbatch } };
  expect(JSON.parse(readFileSync(path(".mcp.json"), "utf8"))).toEqual(both);
  write(".mcp.json", "not JSON");
  expect([(await init()).code, readFileSync(path(".mcp.json"), "utf8")]).toEqual([0, "not JSON"]);
});

it("a message without end closes the connection with a word and an exit code", async () => {
  const { code, stderr } = await runInProcess(["mcp", "--data", join(outside, "data")], {
    cwd: root,
    stdin: Buffer.alloc(9 * 2 ** 20, "x"),
  });
  expect([code, stderr]).toEqual([2, expect.stringContaining("a message of more than 8 MiB")]);
});

it("[MCP-5] a wrong option ends with 2 before any message", async () => {
  const { code, stdout, stderr } = await runInProcess(["mcp", "--root", "nowhere"], { cwd: root });
  expect({ code, stdout, stderr }).toEqual({
    code: 2,
    stdout: "",
    stderr: expect.stringContaining("--root"),
  });
});
