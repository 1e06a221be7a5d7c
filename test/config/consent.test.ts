import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { readConfig, upstreamConfig } from "../../src/config/load.ts";
import { UPSTREAM_NAMES } from "../../src/providers/catalogue/catalogue.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { startFakeService } from "../support/fake-service.ts";
import { listening } from "../support/listening.ts";
import { watchSecret } from "../support/secrets.ts";
import { tempDir } from "../support/temp-dir.ts";

let cwd: string;
let agreements: string;
beforeEach(async () => {
  const home = await tempDir();
  agreements = join(home, "imgbatch");
  vi.stubEnv("XDG_CONFIG_HOME", home);
  for (const name of ["BASE_URL", "API_KEY", "DATA", "DATABASE_URL"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GEMINI_API_KEY", "");
  cwd = await tempDir();
  writeFileSync(join(cwd, "p.jsonl"), '{"prompt": "a fox"}');
});

const configure = (value: unknown, dir = cwd) =>
  writeFileSync(join(dir, "imgbatch.config.json"), typeof value === "string" ? value : JSON.stringify(value));
const run = (args: readonly string[], dir = cwd) =>
  runInProcess([...args, "--data", join(dir, "data")], { cwd: dir });

describe("a configuration that only the working directory names", () => {
  const openai = { name: "p", type: "openai", baseUrl: "https://api.openai.com/v1" };
  it.each<[object, string[]]>([
    [{ $schema: "s", limits: { itemsPerBatch: 5, outageHours: 0.5 } }, []],
    [{ baseUrl: null, server: { port: 8787 }, retention: { inputHours: 24 }, limits: { zipItems: 200 } }, []],
    [{ limits: { itemsPerBatch: 201, zipItems: 1 } }, ["limits.itemsPerBatch"]],
    // Of these, 0 means no limit.
    [{ limits: { requestsPerMinute: 0 } }, ["limits.requestsPerMinute"]],
    [{ models: [{ id: "m" }], simulate: { latencyMs: 1 } }, ["simulate.latencyMs", "models"]],
    [{ groups: [{ name: "default", rateMultiplier: 0.01 }] }, ["groups"]],
    [{ server: { host: "0.0.0.0", publicUrl: "https://x.example" } }, ["server.host", "server.publicUrl"]],
    [{ replay: "recorded" }, ["replay"]],
    [{ retention: { outputHours: 0.001 } }, ["retention.outputHours"]],
    [{ openai: { models: { "gpt-image-1": "vendorx-3-pro-image" } } }, ["openai.models.gpt-image-1"]],
    [{ providers: [openai] }, ["providers[0].type", "providers[0].baseUrl"]],
    [{ baseUrl: "http://127.0.0.1:8787" }, ["baseUrl"]],
    [{ storage: { database: "postgres://127.0.0.1/d" } }, ["storage.database"]],
    [{ storage: { blobs: "s3://bucket" } }, ["storage.blobs"]],
    [{ storage: { s3: { endpoint: "http://localhost:9000" } } }, ["storage.s3.endpoint"]],
    [
      {
        providers: [
          { name: "drawn", type: "procedural", concurrency: 1 },
          { preset: "sdapi", userEnv: "TOKEN" },
        ],
      },
      ["providers[1].userEnv"],
    ],
    [
      { providers: [{ name: "p", type: "command", argv: ["sh"], env: ["HOME"] }] },
      ["providers[0].type", "providers[0].argv", "providers[0].env"],
    ],
    [
      {
        providers: [
          { preset: "bfl", concurrency: 9 },
          { preset: "replicate", name: "r" },
        ],
        vendor: { preset: null },
      },
      [],
    ],
    [
      {
        providers: [{ preset: "replicate", headers: { a: "b" }, path: "/x", rateMultiplier: 0, free: false }],
      },
      ["providers[0].headers", "providers[0].path", "providers[0].rateMultiplier", "providers[0].free"],
    ],
    [{ providers: [{ preset: "bfl", origins: ["https://x.example"] }] }, ["providers[0].origins"]],
  ])("[CONF-6] %j needs consent to %j", (value, fields) => {
    configure(value);
    expect(readConfig({ cwd }).found?.fields ?? []).toEqual(fields);
    expect(readConfig({ cwd, file: "imgbatch.config.json" }).found).toBe(null);
  });

  it("[CONF-6] of a preset needs no consent, except to the program of one's own", () => {
    for (const name of UPSTREAM_NAMES) {
      configure(upstreamConfig(name));
      const fields = name === "command" ? ["providers[0].argv"] : [];
      expect([name, readConfig({ cwd }).found?.fields ?? []]).toEqual([name, fields]);
    }
  });

  it("[CONF-6] runs no program in any command before the user agrees to it, by its content and its place", async () => {
    const program = { name: "p", type: "command", argv: ["touch", join(cwd, "ran")], env: ["HOME"] };
    const config = { providers: [{ ...program, free: true }] };
    const fields = ["type", "argv", "env", "free"].map((field) => `providers[0].${field}`);
    configure(config);
    const submit = ["submit", "p.jsonl", "-o", "out"];
    const commands = [
      submit,
      ["generate", "a fox", "-o", "fox.png"],
      ["generate", "--file", "p.jsonl"],
      ["list"],
      ["status", "imgbatch_1"],
      ["models"],
      ["console"],
      ["doctor"],
      ["providers", "--probe"],
      ["serve", "--port", "0"],
      ["serve", "--port", "0", "--vendor", "google"],
      ["admin", "keys", "list"],
      ["admin", "keys", "create"],
      ["admin", "move", "--blobs", "s3://bucket"],
    ];
    const said = `${join(cwd, "imgbatch.config.json")} needs your consent, since a stranger may have written it: ${fields.join(", ")}.`;
    const expectRefused = async (args: readonly string[], dir = cwd) => {
      const { code, stdout, stderr } = await run(args, dir);
      expect([args, code, stdout + stderr]).toEqual([
        args,
        3,
        expect.stringContaining("imgbatch doctor --agree"),
      ]);
      expect(stdout + stderr).toContain("--config imgbatch.config.json");
      return stdout + stderr;
    };
    for (const args of commands) expect(await expectRefused(args)).toContain(said);
    expect((await runInProcess(["exec", "--", "touch", "ran"], { cwd })).code).toBe(3);
    expect(readdirSync(cwd).sort()).toEqual(["imgbatch.config.json", "p.jsonl"]);
    expect((await run([...submit, "--json"])).json().error).toMatchObject({
      code: "CONSENT_REQUIRED",
      details: fields,
    });

    const agreed = await run(["doctor", "--agree"]);
    expect([agreed.code, agreed.stdout]).toEqual([
      0,
      expect.stringContaining(`you agree to ${fields.join(", ")}`),
    ]);
    const [store = ""] = readdirSync(agreements);
    expect(statSync(join(agreements, store)).mode & 0o777).toBe(0o600);
    expect((await run(["doctor"])).code).toBe(0);
    expect((await run(submit)).code).toBe(5);
    expect(existsSync(join(cwd, "ran"))).toBe(true);

    // The same words elsewhere may mean another program.
    const elsewhere = await tempDir();
    configure(config, elsewhere);
    await expectRefused(["list"], elsewhere);
    mkdirSync(join(elsewhere, "below"));
    symlinkSync(join(cwd, "imgbatch.config.json"), join(elsewhere, "below", "imgbatch.config.json"));
    await expectRefused(["list"], join(elsewhere, "below"));
    configure(`${JSON.stringify(config)}\n`);
    await expectRefused(submit);
    configure(config);
    expect((await run(["list"])).code).toBe(0);
    writeFileSync(join(agreements, store), "{");
    await expectRefused(submit);
    expect((await run(["list", "--config", "imgbatch.config.json"])).code).toBe(0);
  });

  it("[CONF-6] holds for the program of a run too, whose directory a stranger may have made", async () => {
    const submit = ["submit", "p.jsonl", "-o", "out", "--max-cost", "1"];
    expect((await run(submit)).code).toBe(0);
    const state = join(cwd, "out/imgbatch.json");
    const drawn = JSON.parse(readFileSync(state, "utf8"));
    writeFileSync(state, JSON.stringify({ ...drawn, upstream: "command" }));
    const { code, stderr } = await run([...submit, "--new"]);
    expect([code, stderr]).toEqual([3, expect.stringContaining("with --upstream command")]);
  });

  it("[CONF-6] sends no password to a database or a service of this machine, not even from doctor", async () => {
    let connections = 0;
    const anyone = createServer((socket) => {
      connections += 1;
      socket.destroy();
    });
    const { host } = new URL(await listening(anyone));
    vi.stubEnv("PGPASSWORD", "password-of-the-test");
    watchSecret("password-of-the-test");
    vi.stubEnv("IMGBATCH_API_KEY", "key-of-the-test");
    for (const value of [{ storage: { database: `postgres://${host}/d` } }, { baseUrl: `http://${host}` }]) {
      configure(value);
      for (const args of [["doctor"], ["admin", "keys", "list"], ["models"], ["ready"], ["watch"]])
        expect([args, (await run(args)).code]).toEqual([args, 3]);
    }
    expect(connections).toBe(0);
  });

  it("a pipe, or a link to a device, in the place of a file is an error, and is never read", async () => {
    const place = (name: string, make: (path: string) => void) => {
      const path = join(cwd, name);
      rmSync(path, { force: true, recursive: true });
      make(path);
    };
    const kinds = [
      (path: string) => execFileSync("mkfifo", [path]),
      (path: string) => symlinkSync("/dev/zero", path),
    ];
    for (const make of kinds) {
      place("imgbatch.config.json", make);
      for (const args of [["list"], ["submit", "p.jsonl", "-o", "out"], ["doctor"]])
        expect([args, await run(args)]).toMatchObject([args, { code: 2 }]);
      expect((await run(["list"])).stderr).toContain(
        "imgbatch.config.json: cannot be read: it is not a file",
      );
    }
    rmSync(join(cwd, "imgbatch.config.json"));
    expect((await run(["submit", "p.jsonl", "-o", "out"])).code).toBe(0);
    for (const make of kinds) {
      for (const name of ["out/imgbatch.json", "out/results.jsonl", "out/input.jsonl"]) {
        const whole = readFileSync(join(cwd, name));
        place(name, make);
        const { code } = await run(["status", "out"]);
        expect([name, code]).toEqual([name, name === "out/imgbatch.json" ? 9 : 0]);
        rmSync(join(cwd, name));
        writeFileSync(join(cwd, name), whole);
      }
    }
  });

  it("[CONF-6] what is typed or in the environment is consent itself, and to nothing else", async () => {
    const fake = await startFakeService({ statuses: ["completed"] });
    onTestFinished(() => fake.close());
    vi.stubEnv("IMGBATCH_API_KEY", "test-key-of-the-fake-service");
    configure({ baseUrl: fake.url, providers: [{ name: "p", type: "command", argv: ["true"] }] });
    expect((await run(["models", "--base-url", fake.url])).code).toBe(0);
    vi.stubEnv("IMGBATCH_BASE_URL", fake.url);
    expect((await run(["models"])).code).toBe(0);
    expect((await run(["providers"])).stderr).toContain("written it: providers[0].type, providers[0].argv.");
    vi.stubEnv("IMGBATCH_BASE_URL", "");
    expect((await run(["providers", "--upstream", "p"])).stderr).toContain(
      "written it: baseUrl, providers[0].type, providers[0].argv.",
    );
    const ignoring = ["doctor", "--upstream", "google", "--config", "none"];
    expect((await run(ignoring)).stdout).toContain("export GEMINI_API_KEY");
    configure({ baseUrl: fake.url });
    const asked = fake.requests.length;
    expect((await run(["models"])).code).toBe(3);
    expect(fake.requests).toHaveLength(asked);
    configure({ storage: { database: "postgres://127.0.0.1:1/d" } });
    expect((await run(["admin", "keys", "list", "--database", "sqlite"])).stderr).not.toContain("consent");
  });
});
