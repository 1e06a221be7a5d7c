import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { fakeBucket } from "../support/s3/buckets.ts";
import { watchSecret } from "../support/secrets.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

const serveArgs = (data: string, ...more: string[]) => [BIN, "serve", "--port", "0", "--data", data, ...more];
const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));

describe("imgbatch serve", () => {
  it("says when it is ready, in a line and in a file, and stops gracefully on SIGTERM", async () => {
    const data = await tempDir();
    const readyFile = join(data, "ready.json");
    const serve = startNode(serveArgs(data, "--ready-file", readyFile));
    const line = JSON.parse(await serve.line());
    expect(line).toEqual({ event: "ready", url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) });
    const credentials = join(data, "credentials.json");
    expect(readJson(readyFile)).toEqual({ url: line.url, pid: serve.child.pid, data, credentials });
    expect(readJson(credentials)).toEqual({
      base_url: line.url,
      api_key: expect.stringMatching(/^imgb_.{43}$/),
    });
    for (const file of [credentials, join(data, "imgbatch.db"), join(data, "server.json")]) {
      expect(statSync(file).mode & 0o777).toBe(0o600);
    }
    expect((await fetch(`${line.url}/readyz`)).status).toBe(200);
    const authorization = `Bearer ${readJson(credentials).api_key}`;
    const models = await fetch(`${line.url}/v1/images/batches/models`, { headers: { authorization } });
    expect(models.status).toBe(200);
    await models.arrayBuffer();

    serve.child.kill("SIGTERM");
    const { code, stderr } = await serve.exited;
    expect(code).toBe(0);
    expect(existsSync(readyFile)).toBe(false);
    expect(existsSync(join(data, "server.json"))).toBe(false);
    for (const logLine of stderr.trim().split("\n")) expect(() => JSON.parse(logLine)).not.toThrow();
    expect(stderr).not.toContain(readJson(credentials).api_key);
  });

  it("[DOCTOR-2] warns of providers without a key or with one that cannot be sent, which are disabled, and starts with the others; says that it charges half", async () => {
    const data = await tempDir();
    const google = { name: "real", type: "native", baseUrl: "https://generativelanguage.googleapis.com" };
    const providers = [
      { ...google, apiKeyEnv: "GEMINI_API_KEY" },
      { ...google, name: "pasted", apiKeyEnv: "PASTED_KEY" },
      { name: "drawn", type: "procedural" },
    ];
    writeFileSync(join(data, "imgbatch.config.json"), JSON.stringify({ providers }));
    const args = [...serveArgs(data), "--config", "imgbatch.config.json"];
    const serve = startNode(args, {
      cwd: data,
      env: cleanEnvironment({ GEMINI_API_KEY: "", PASTED_KEY: "canary\u201ckey" }),
    });
    expect(JSON.parse(await serve.line())).toMatchObject({ event: "ready" });
    serve.child.kill("SIGTERM");
    const { code, stderr } = await serve.exited;
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect([code, lines.filter(({ level }) => level === "warn")]).toEqual([
      0,
      [
        expect.objectContaining({
          msg: "a provider is disabled",
          provider: "real",
          reason: "the environment variable GEMINI_API_KEY is not set",
        }),
        expect.objectContaining({
          msg: "a provider is disabled",
          provider: "pasted",
          reason: "PASTED_KEY holds characters that no key has: U+201C",
        }),
      ],
    ]);
    expect(lines).toContainEqual(
      expect.objectContaining({
        msg: "the group default charges half of what real bills for an image of a batch",
        advice: expect.stringContaining('"batchDiscount": 1'),
      }),
    );
  });

  it("[DATA-1] owns its data directory: a second one gets an error that names the owner", async () => {
    const data = await tempDir();
    const first = startNode(serveArgs(data));
    const { url } = JSON.parse(await first.line());
    const second = await runInProcess(["serve", "--port", "0", "--data", data], { cwd: data });
    expect(second.code).toBe(6);
    expect(second.stderr).toContain(`pid ${first.child.pid}, ${url}`);
  });

  it("a port that is taken is an error that names it", async () => {
    const data = await tempDir();
    // It takes connections and says nothing.
    const other = createServer((socket) => void socket.resume());
    const port = await new Promise<number>((done) =>
      other.listen(0, "127.0.0.1", () => done((other.address() as { port: number }).port)),
    );
    try {
      const serve = await runInProcess(["serve", "--port", String(port), "--data", data], { cwd: data });
      expect(serve.code).toBe(6);
      expect(serve.stderr).toContain(`127.0.0.1:${port} is taken by another program`);
    } finally {
      await new Promise((done) => other.close(done));
    }
  });

  it("the error for a port of another imgbatch service names its process and data directory", async () => {
    const [usual, other] = [await tempDir(), await tempDir()];
    vi.stubEnv("IMGBATCH_DATA", usual);
    const first = startNode([BIN, "serve", "--port", "0"], {
      env: cleanEnvironment({ IMGBATCH_DATA: usual }),
    });
    const { port } = new URL(JSON.parse(await first.line()).url);
    const known = await runInProcess(["serve", "--port", port, "--data", other], { cwd: usual });
    expect(known.code).toBe(6);
    expect(known.stderr).toContain(`the data directory ${usual} (process ${first.child.pid})`);
    expect(known.stderr).toMatch(/\nnext: .*--port 0/);
    vi.stubEnv("IMGBATCH_DATA", other);
    const unknown = await runInProcess(["serve", "--port", port], { cwd: usual });
    expect(unknown.stderr).toContain("taken by another imgbatch service");
    first.child.kill("SIGINT");
    expect((await first.exited).code).toBe(0);
  });

  it("--ephemeral leaves nothing behind, and --test lets tests order faults", async () => {
    const temporary = await tempDir();
    const env = cleanEnvironment({ TMPDIR: temporary });
    const readyFile = join(temporary, "ready.json");
    const flags = ["--port", "0", "--ephemeral", "--test", "--ready-file", readyFile];
    const serve = startNode([BIN, "serve", ...flags], { env });
    await serve.line();
    const { data, url, credentials } = readJson(readyFile);
    const headers = { authorization: `Bearer ${readJson(credentials).api_key}` };
    expect((await fetch(`${url}/imgbatch/test/faults`, { headers })).status).toBe(200);
    expect(existsSync(join(data, "imgbatch.db"))).toBe(true);
    serve.child.kill("SIGINT");
    expect((await serve.exited).code).toBe(0);
    expect(existsSync(data)).toBe(false);
  });

  it.each([
    [["--port", "99999"], "--port"],
    [["--grace", "soon"], "--grace"],
    [["--simulate", "speed=2"], "--simulate"],
    [["--simulate", "fail=3"], "--simulate"],
    [["--log-level", "loud"], "--log-level"],
  ])("%j is a usage error that names the flag", async (flags, name) => {
    const cwd = await tempDir();
    const { code, stderr, stdout } = await runInProcess(["serve", "--data", cwd, ...flags], { cwd });
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(name);
  });
});

describe("imgbatch admin check", () => {
  it("[CHECK-1] finds what was changed behind the service's back", async () => {
    const { data, close } = await startTestService();
    await close(0);
    const check = ["admin", "check", "--data", data];
    expect((await runInProcess(check, { cwd: data })).code).toBe(0);
    const { default: Sqlite } = await import("better-sqlite3");
    const database = new Sqlite(join(data, "imgbatch.db"));
    database.exec("update accounts set balance_micro_usd = balance_micro_usd + 1");
    database.close();
    const { code, stdout } = await runInProcess([...check, "--json"], { cwd: data });
    expect(code).toBe(4);
    expect(JSON.parse(stdout).problems).toEqual([
      "account default: balance is 1000000001, should be 1000000000 (micro-dollars)",
    ]);
  });
});

it.skipIf(!hasPostgres)(
  "a service of several processes is run, looked at, used and stopped by commands alone",
  async () => {
    const [cwd, url, { settings }] = [await tempDir(), await newDatabase(), await fakeBucket()];
    const { bucket, prefix, endpoint, accessKeyId = "", secretAccessKey = "" } = settings;
    watchSecret(secretAccessKey);
    const config = join(cwd, "service.json");
    const storage = { database: url, blobs: `s3://${bucket}/${prefix}`, s3: { endpoint } };
    writeFileSync(config, JSON.stringify({ storage }));
    const secrets = {
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
      PGPASSWORD: "a password that is not asked for",
    };
    const env = cleanEnvironment(secrets);
    for (const [name, value] of Object.entries(secrets)) vi.stubEnv(name, value);
    const options = ["--config", config, "--data", join(cwd, "of-commands")];
    const command = (...args: string[]) => runInProcess([...args, ...options], { cwd });
    const serve = async (name: string, role: string) => {
      const data = join(cwd, name);
      // It takes requests for half of the grace, while a proxy may not have seen yet that it stops.
      const about = ["--role", role, "--port", "0", "--grace", "2s"];
      const args = [BIN, "serve", ...about, "--data", data, "--config", config];
      const running = startNode(args, { cwd, env });
      return { ...running, url: JSON.parse(await running.line()).url as string };
    };
    const api = await serve("api", "api");
    const alone = await command("doctor");
    expect(alone.stdout).toContain("processes: 1 take requests, 0 make images");
    const worker = await serve("worker", "worker");
    expect((await fetch(`${worker.url}/readyz`)).status).toBe(200);
    const made = await command("admin", "keys", "create", "--json");
    const { key } = JSON.parse(made.stdout) as { key: string };
    watchSecret(key);
    await expect.poll(async () => (await fetch(`${api.url}/readyz?for=work`)).status).toBe(200);
    const doctor = await command("doctor", "--json");
    const findings = (JSON.parse(doctor.stdout) as { findings: { check: string; state: string }[] }).findings;
    expect(findings.filter(({ check }) => /^(database|processes|bucket)$/.test(check))).toMatchObject([
      { state: "ok" },
      { state: "ok" },
      { state: "ok" },
    ]);
    writeFileSync(join(cwd, "prompts.txt"), "a red fox\na blue fox\n");
    vi.stubEnv("IMGBATCH_API_KEY", key);
    const submitted = await command(
      "submit",
      "prompts.txt",
      "--json",
      "--interval",
      "50ms",
      "--base-url",
      api.url,
    );
    expect(submitted.code).toBe(0);
    const providers = await command("providers", "--json");
    expect(JSON.parse(providers.stdout)).toMatchObject({ providers: [{ total: { images: 2 } }] });
    const checked = await command("admin", "check", "--json");
    expect(JSON.parse(checked.stdout)).toMatchObject({ batches: 1, images: 2, problems: [] });
    for (const { child, exited } of [api, worker]) {
      child.kill("SIGTERM");
      expect((await exited).code).toBe(0);
    }
    const left = await command("doctor");
    expect(left.stdout).toContain("processes: 0 take requests, 0 make images");
  },
);

describe("imgbatch console", () => {
  it("prints a link that signs in once to the running service of the data directory", async () => {
    const service = await startTestService({ workers: false });
    const args = ["console", "--data", service.data];
    const { code, stdout } = await runInProcess(args, { cwd: service.data });
    expect(code).toBe(0);
    const link = new URL(stdout.trim());
    expect(`${link.origin}${link.pathname}`).toBe(`${service.url}/`);
    const signIn = () =>
      fetch(`${service.url}/v1/console/sessions`, {
        method: "POST",
        headers: { authorization: `Bearer ${link.hash.slice("#code=".length)}` },
      });
    expect([(await signIn()).status, (await signIn()).status]).toEqual([200, 401]);
    const asJson = (await runInProcess([...args, "--json"], { cwd: service.data })).json();
    expect(asJson).toMatchObject({ ok: true, expires_at: expect.any(Number) });
    expect(asJson.url).toMatch(/\/#code=[\w-]{43}$/);
    expect(asJson.url).not.toBe(link.href);
  });

  it("says what to do where no service runs, and where it has no console", async () => {
    const data = await tempDir();
    const none = await runInProcess(["console", "--data", data], { cwd: data });
    expect([none.code, none.stdout]).toEqual([7, ""]);
    expect(none.stderr).toContain(`next: start one with imgbatch serve --data ${data}, or`);
    const off = await startTestService({ workers: false, config: { features: { console: false } } });
    const refused = await runInProcess(["console", "--data", off.data], { cwd: off.data });
    expect(refused.code).toBe(10);
    expect(refused.stderr).toContain("has no web console");
    expect(refused.stderr).toContain("features.console");
  });
});

describe("imgbatch ready", () => {
  it("prints the address of a service that works and takes the key", async () => {
    const cli = await createCli();
    const { code, stdout } = await cli.here(["ready"], { env: {} });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${cli.fake.url}\n` });
    expect((await cli.here(["ready", "--json"])).json()).toEqual({
      ok: true,
      ready: true,
      url: cli.fake.url,
      exit_code: 0,
    });
    expect(cli.fake.count(/^POST/)).toBe(0);
  });

  it("is 7 while the service is not ready, and says why", async () => {
    const cli = await createCli();
    cli.fake.fault(/readyz/, { status: 503, body: { status: "not_ready", problems: ["the disk is full"] } });
    const { code, stderr } = await cli.here(["ready"], { env: {} });
    expect(code).toBe(7);
    expect(stderr).toContain("Not ready: the disk is full.");
    const down = await cli.here(["ready", "--base-url", "http://127.0.0.1:1"], { env: {} });
    expect(down.code).toBe(7);
    expect(down.stderr).toContain("next: imgbatch ready --wait");
    expect(down.stderr).not.toContain("paid");
  });

  it("asks the running service of the data directory, and starts none", async () => {
    const data = await tempDir();
    const env = cleanEnvironment({ IMGBATCH_DATA: data });
    const none = await runInProcess(["ready", "--data", data], { cwd: data });
    expect(none.code).toBe(7);
    expect(none.stderr).toContain(`next: start one (imgbatch serve --data ${data})`);
    const waiting = startNode([BIN, "ready", "--wait"], { env });
    const serve = startNode([BIN, "serve", "--port", "0"], { env });
    const { url } = JSON.parse(await serve.line());
    const { code, stdout } = await waiting.exited;
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${url}\n` });
  });

  it("a refused or missing key is 3 at once, also with --wait", async () => {
    const cli = await createCli();
    cli.fake.fault(/models/, { status: 401, body: { error: { code: "INVALID_API_KEY", message: "no" } } });
    expect((await cli.here(["ready", "--wait"])).code).toBe(3);
    expect((await cli.here(["ready"], { env: { IMGBATCH_API_KEY: "" } })).code).toBe(3);
  });

  it("--wait looks until it is ready, or until the time is up: then 124", async () => {
    const cli = await createCli();
    const down = { status: 503, body: "" };
    cli.fake.fault(/readyz/, down, down);
    expect((await cli.here(["ready", "--wait"])).code).toBe(0);
    expect(cli.fake.count(/readyz/)).toBe(3);
    cli.fake.fault(/readyz/, ...Array.from({ length: 50 }, () => down));
    // The second look begins when the first one is over.
    endLimitWhen(() => cli.fake.count(/readyz/) > 4);
    const late = await cli.here(["ready", "--wait", "--timeout", LIMIT, "--json"]);
    expect(late.code).toBe(124);
    expect(late.json().error?.message).toContain("HTTP 503");
    const silent = await createCli();
    silent.fake.fault(/readyz/, { silent: true });
    expect((await silent.here(["ready", "--timeout", "300ms"])).code).toBe(124);
  });
});
