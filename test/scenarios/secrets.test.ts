import { chmodSync, readdirSync, readFileSync, statSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { randomIds, sha256Hex } from "../../src/kernel/ids.ts";
import { createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FAKE_KEY } from "../support/fake-service.ts";
import { findSecrets } from "../support/find-secrets.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { exchange } from "../support/raw-http.ts";
import { allowKeyFile, allowSecret, watchText } from "../support/secrets.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const BATCHES = "/v1/images/batches";
const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const isSilentOn = (key: string, text: string) => findSecrets(Buffer.from(text), [key]).length === 0;

/** Every place of a request into which somebody can put a key by mistake or on purpose, as raw HTTP. */
function misplaced(key: string, authorization: string): string[] {
  const request = (target: string, headers: string[] = [], method = "GET", body = "") =>
    [`${method} ${target} HTTP/1.1`, "Host: localhost", "Connection: close", authorization, ...headers]
      .filter((line) => line !== "")
      .join("\r\n")
      .concat("\r\n\r\n", body);
  const posted = (body: string, headers: string[] = []) =>
    request(BATCHES, [`Content-Length: ${Buffer.byteLength(body)}`, ...headers], "POST", body);
  const encoded = key.replace("_", "%5F");
  const allEncoded = [...key].map((c) => `%${c.charCodeAt(0).toString(16)}`).join("");
  return [
    request(`${BATCHES}/models?api_key=${key}`),
    request(`${BATCHES}/models?key=${key}`),
    request(`${BATCHES}/models?access_token=${encoded}&x=${allEncoded}`),
    request(`${BATCHES}?cursor=${key}&status=${key}`),
    request(`${BATCHES}?limit=${key}`),
    request(`${BATCHES}/${key}`),
    request(`${BATCHES}/${encoded}`),
    request(`${BATCHES}/${allEncoded.replaceAll("%", "%25")}?x=${key.replace("i", "%2569")}`),
    request(`${BATCHES}/${key.replace("_", "%25255f")}`),
    request(`${BATCHES}/${allEncoded}/items/${key}/content?image_index=${key}`),
    request(`/${key}`, [], "DELETE"),
    request(`http://user:${key}@x/healthz?api_key=${key}`),
    request(`/readyz#${key}`),
    request(`${BATCHES}/models`, [`X-Request-Id: ${key}`]),
    request(`${BATCHES}/models`, [`X-Request-Id: job-${key}.1`]),
    request(`${BATCHES}/models`, [
      `User-Agent: ${key}`,
      `Cookie: session=${key}`,
      `Referer: http://x/${key}`,
    ]),
    request(`${BATCHES}/models`, [`X-Api-Key: ${key}`, `X-Forwarded-For: ${key}`, `If-None-Match: "${key}"`]),
    posted(`{"model":"${key}","items":[{"prompt":"a"}]}`, [`Idempotency-Key: ${key}`]),
    posted(`{"broken ${key}`),
    posted(`${key}`, [`Content-Type: text/${key}`]),
    posted(`{"model":"${MODEL}","items":[{"prompt":"a"}]}`, [`Idempotency-Key: ${key}\u00e9`]),
    `GET ${BATCHES} HTTP/${key}\r\nAuthorization: ${key}\r\n\r\n`,
    `${key} / HTTP/1.1\r\n\r\n`,
    `GET /${" "}${key} HTTP/1.1\r\nHost: localhost\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: localhost\r\nX-${key}\u0001: ${key}\r\n\r\n`,
  ];
}

/** The forms in which a service can repeat a key, as they stand between the quotes of JSON. */
function otherForms(key: string): string[] {
  const each = (write: (hex: string) => string) =>
    [...key].map((c) => write(c.charCodeAt(0).toString(16).padStart(2, "0"))).join("");
  const slashed = key.replaceAll("/", "\\/").replace("+", "\\u002b");
  return [
    key,
    slashed,
    each((hex) => `\\u00${hex}`),
    JSON.stringify(JSON.stringify({ key: slashed })).slice(1, -1),
    encodeURIComponent(key),
    encodeURIComponent(encodeURIComponent(key)),
    each((hex) => `%${hex}`),
    key.replaceAll("/", "&#x2f;").replaceAll("+", "&#43;"),
    Buffer.from(key).toString("hex").toUpperCase(),
    ...["", "u:", "me:"].flatMap((before) =>
      (["base64", "base64url"] as const).map((form) => Buffer.from(`${before}${key}`).toString(form)),
    ),
  ];
}

describe("a running service", () => {
  it("neither logs nor repeats a key, wherever a request has it", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ logLines });
    const valid = service.credentials.api_key;
    for (const key of [valid, randomIds.apiKey()]) {
      for (const authorization of ["", `Authorization: Bearer ${key}`, `Authorization: ${key}`]) {
        for (const request of misplaced(key, authorization)) {
          const answer = (await exchange(service.url, Buffer.from(request, "latin1")))?.text ?? "";
          expect(answer, request).toMatch(/^HTTP\/1\.1 [2-5]\d\d /);
          expect(isSilentOn(key, answer), request).toBe(true);
        }
      }
    }
    expect(logLines.length).toBeGreaterThan(100);
    for (const line of logLines) expect(isSilentOn(valid, line)).toBe(true);
    expect(logLines.join("")).toContain(`${BATCHES}/imgb_…`);
    for (const path of ["/metrics", "/openapi.json", "/readyz", "/healthz"]) {
      watchText(await (await fetch(service.url + path)).text(), path);
    }
  });

  it("keeps an API key that is sent as idempotency key only as its hash, and obeys it all the same", async () => {
    const service = await startTestService();
    const key = service.credentials.api_key;
    const body = { model: MODEL, items: items(1) };
    const first = await service.submit(body, { "idempotency-key": key });
    const again = await service.create(body, { "idempotency-key": key });
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    expect(await again.json()).toMatchObject({ id: first.id });
    await service.until(first.id);
    const { stores } = await openBeside(service.data);
    const owner = (await stores.read.keys.bySha256(sha256Hex(key)))?.id ?? "";
    expect(await stores.read.idempotency.find(owner, key)).toBeNull();
    expect(await stores.read.idempotency.find(owner, `sha256:${sha256Hex(key)}`)).toMatchObject({
      batchId: first.id,
    });
  });

  it("[SECRET-8] leaves what a caller writes into a prompt as it is, and does not log it", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ logLines });
    const written = randomIds.apiKey();
    allowSecret(written);
    const { id } = await service.submit({ model: MODEL, items: [{ prompt: `paint ${written}` }] });
    await service.until(id);
    const [item] = await service.items(id);
    expect(item?.prompt_preview).toBe(`paint ${written}`);
    expect(logLines.join("")).not.toContain(written);
  });

  it("says nothing of a key at the most talkative level, and none of it is in its files", async () => {
    const data = await tempDir();
    const args = ["serve", "--port", "0", "--data", data, "--log-level", "debug"];
    const serve = startNode([BIN, ...args]);
    const { url } = JSON.parse(await serve.line());
    const { api_key: key } = readJson(join(data, "credentials.json"));
    for (const request of misplaced(key, `Authorization: Bearer ${key}`))
      await exchange(url, Buffer.from(request, "latin1"));
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const body = JSON.stringify({ model: MODEL, items: [{ prompt: "a fox" }] });
    const made = await fetch(url + BATCHES, { method: "POST", headers, body });
    const { id } = (await made.json()) as { id: string };
    await expect
      .poll(async () => (await (await fetch(`${url}${BATCHES}/${id}`, { headers })).json()).status)
      .toBe("completed");
    for (const args of [["keys", "list"], ["accounts", "list"], ["ledger"], ["check"]]) {
      const admin = ["admin", ...args, "--data", data, "--json", "--verbose"];
      const { stdout, stderr } = await runInProcess(admin, { cwd: data });
      expect(isSilentOn(key, stdout + stderr)).toBe(true);
    }
    serve.child.kill("SIGTERM");
    const { stdout, stderr } = await serve.exited;
    expect(stderr.split("\n").length).toBeGreaterThan(20);
    expect(isSilentOn(key, stdout + stderr)).toBe(true);
    const files = readdirSync(data, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
    const holders = files.filter(
      (each) => !isSilentOn(key, readFileSync(join(each.parentPath, each.name), "latin1")),
    );
    expect(holders.map(({ name }) => name)).toEqual(["credentials.json"]);
  });

  it("closes a file with the key that others could read, and says so", async () => {
    const first = await startTestService({ workers: false });
    await first.close(0);
    const file = join(first.data, "credentials.json");
    chmodSync(file, 0o644);
    const logLines: string[] = [];
    const second = await startTestService({ data: first.data, workers: false, logLines });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(second.credentials.api_key).toBe(first.credentials.api_key);
    expect(logLines.join("")).toContain("closed to them now");
  });
});

describe("the command line", () => {
  it("[SECRET-6] shows no key in any error, as JSON or for people, of any command", async () => {
    const cli = await createCli();
    const key = randomIds.apiKey();
    const password = "canary-password-42";
    await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
    const keyFile = join(cli.cwd, "key.txt");
    allowKeyFile(keyFile);
    await writeFile(keyFile, `${key}\u0001`);
    await mkdir(join(cli.cwd, "dir"));
    const nowhere = ["--base-url", `http://127.0.0.1:9/${key}`];
    const wrong: string[][] = [
      ["submit", "p.jsonl", "--api-key-file", keyFile],
      ["submit", "p.jsonl", "--api-key-file", key],
      ["submit", key],
      ["submit", "p.jsonl", `--api-key=${key}`],
      ["submit", "p.jsonl", "--idempotency-key", key],
      ["submit", "p.jsonl", "--model", key, "--output", "dir/out"],
      ["submit", "p.jsonl", "--metadata", key],
      ["submit", "p.jsonl", "--max-cost", key],
      ["submit", "p.jsonl", "--config", key],
      ["models", "--base-url", `http://127.0.0.1:9/?api_key=${key}`],
      ["models", "--base-url", `http://user:${key}@127.0.0.1:9`],
      ["models", "--base-url", `http://:${password}@127.0.0.1:9`],
      ["models", "--base-url", `http://me:${password}@127.0.0.1:9`],
      ["models", ...nowhere, "--data", "dir"],
      ["status", key],
      ["wait", key, "--timeout", "1s"],
      ["wait", `imgbatch_${"0".repeat(32)}`, "--timeout", key],
      ["download", key, "--output", "dir/out"],
      ["download", "x", "--item", key],
      ["serve", "--port", key],
      ["serve", "--simulate", key],
      ["serve", "--log-level", key],
      ["admin", "keys", "disable", key],
      ["admin", "keys", "create", "--expires", key, "--data", "dir"],
      ["admin", "ledger", "--batch", key],
      ["admin", "accounts", "top-up", key, key],
      [key],
    ];
    for (const args of wrong) {
      const env = { IMGBATCH_API_KEY: key };
      const { code, stdout, stderr } = await cli.here([...args, "--json", "--verbose"], { env });
      const said = stdout + stderr;
      expect({ args, code, isSilent: isSilentOn(key, said) }).toMatchObject({ isSilent: true });
      expect(said).not.toContain(password);
      expect(code, args.join(" ")).not.toBe(0);
    }
  });

  it("[SECRET-6] shows no key when a service repeats it, or after an unexpected error", async () => {
    const cli = await createCli();
    await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
    const key = randomIds.apiKey();
    const message = `Authorization: Bearer ${key} is not welcome`;
    for (const code of ["INVALID_API_KEY", `CODE_${key}`]) {
      cli.fake.fault(/^POST/, { status: 401, body: { error: { code, message, param: key } } });
      const { stdout, stderr } = await cli.here(["submit", "p.jsonl", "--json"]);
      expect(JSON.parse(stdout)).toMatchObject({ ok: false });
      expect(isSilentOn(key, stdout + stderr)).toBe(true);
    }
    const program = `
      import { runCli } from "${join(import.meta.dirname, "../../build/cli/run-cli.js")}";
      const { stdin, stdout, stderr } = process;
      const exit = (code) => process.exit(code);
      const write = stdout.write.bind(stdout);
      stdout.write = (...said) => {
        setImmediate(() => { throw new Error("unforeseen: ${key}"); });
        return write(...said);
      };
      void runCli(["serve", "--port", "0", "--ephemeral"], { stdin, stdout, stderr, cwd: ".", signals: process, exit });
    `;
    const env = cleanEnvironment({ TMPDIR: await tempDir() });
    const crashed = startNode(["--input-type=module", "-e", program], { env });
    const { code, stdout, stderr } = await crashed.exited;
    expect({ code, isSilent: isSilentOn(key, stdout + stderr) }).toEqual({ code: 1, isSilent: true });
    expect(stderr).toContain("unforeseen: imgb_…");
  });

  it("[SECRET-6] [SECRET-2] shows and saves no key that a service repeats in another form", async () => {
    const key = "sk-foreign/canary+42&more=yes";
    const forms = otherForms(key);
    const cli = await createCli({ failing: /./, key });
    const env = { IMGBATCH_API_KEY: key };
    await writeFile(join(cli.cwd, "p.jsonl"), forms.map((_, i) => `{"prompt":"p${i}"}`).join("\n"));
    let at = 0;
    const told = (body: Buffer) =>
      Buffer.from(
        body.toString().replaceAll("It did not work.", () => `it broke: ${forms[at++ % forms.length]}.`),
      );
    cli.fake.always(/items/, { lie: (answer) => ({ ...answer, body: told(answer.body) }) });
    const reports = ["--junit", "j.xml", "--markdown", "m.md", "--events", "e.jsonl", "--verbose"];
    const run = await cli.here(["submit", "p.jsonl", "--output", "out", "--json", ...reports], { env });
    expect(run.code).toBe(5);
    const files = readdirSync(cli.cwd, { recursive: true, withFileTypes: true }).filter((each) =>
      each.isFile(),
    );
    const texts = files.map((each) => readFileSync(join(each.parentPath, each.name)));
    expect(texts.join("").match(/it broke: /g)?.length).toBeGreaterThan(3 * forms.length);
    const holders = files.filter((_, i) => findSecrets(texts[i] ?? Buffer.alloc(0), [key]).length > 0);
    expect(holders.map(({ name }) => name)).toEqual([]);
    expect(isSilentOn(key, run.stdout + run.stderr)).toBe(true);

    const body = `{"error":{"code":"INVALID_API_KEY","message":"no: ${forms.join(" ")}","param":"${forms[1]}"}}`;
    cli.fake.fault(/models/, { status: 401, body });
    const refused = await cli.here(["models", "--json", "--verbose"], { env });
    expect(refused.json().error?.message).toMatch(/^no: (\S*\[API key\]\S* ?)+/);
    expect(isSilentOn(key, refused.stdout + refused.stderr)).toBe(true);
    for (const args of [
      ["items", "out"],
      ["items", "out", "--json"],
    ]) {
      const { stdout, stderr } = await cli.here(args, { env });
      expect(stdout).toContain("it broke");
      expect(isSilentOn(key, stdout + stderr)).toBe(true);
    }
  });

  it("[SECRET-2] puts no key into a run directory: its run state has a short hash", async () => {
    const cli = await createCli();
    await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
    expect((await cli.here(["submit", "p.jsonl", "--output", "out"])).code).toBe(0);
    const runState = readJson(join(cli.cwd, "out/imgbatch.json"));
    expect(runState.key_fingerprint).toBe(sha256Hex(FAKE_KEY).slice(0, 12));
  });
});
