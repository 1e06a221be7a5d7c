import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findSecrets } from "../support/find-secrets.ts";
import { Chain, model } from "../support/upstreams/chain.ts";
import type { Behaviour, Exchange, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { nativeBlocks, nativeErrors, startNative } from "../support/upstreams/native.ts";
import { startOpenai } from "../support/upstreams/openai.ts";
import { DIALECTS, openaiErrors } from "../support/upstreams/openai-dialects.ts";
import { startSdapi } from "../support/upstreams/sdapi.ts";

/** With the characters that JSON, addresses and forms write in other ways. */
const CANARY = "canary-Q7+vZ2/mK4pL8wR3tY6uB1nD5~xE9";
const PASSWORD = "canary-password-9f8e7d6c5b4a";
const ENV = { CANARY_API_KEY: CANARY, CANARY_SECRET: PASSWORD, CANARY_USER: "painter" };
const BASIC = Buffer.from(`${ENV.CANARY_USER}:${PASSWORD}`).toString("base64");
const SECRETS = [CANARY, PASSWORD, BASIC];

/** Answers, made from the credentials of the request. */
const saying = (answer: (credentials: string) => Parameters<typeof hostile.answers>[0]): Behaviour => {
  return async (exchange: Exchange) => {
    await exchange.read();
    exchange.send(answer(hostile.credentialsOf(exchange)));
  };
};
const page = (key: string) =>
  `<html><body><p>Denied: ${key.replaceAll("/", "&#x2f;")} ${key}</p></body></html>`;
const escaped = (key: string) => JSON.stringify(key).replaceAll("/", "\\/").replaceAll("+", "\\u002b");

const EVERYWHERE: Record<string, Behaviour> = {
  ...Object.fromEntries(
    [400, 401, 403, 404, 413, 422, 429, 500, 502].map((code) => [`${code}`, hostile.echo(code)]),
  ),
  "200 with an error": hostile.echo(200),
  "a page": saying((key) => ({ status: 403, headers: { "content-type": "text/html" }, body: page(key) })),
  "an escaped document": saying((key) => ({ status: 400, body: `{"error":{"message":${escaped(key)}}}` })),
  "half a document": saying((key) => ({ status: 200, body: `{"error":{"message":"${key}` })),
  "plain text": saying((key) => ({ status: 500, headers: { "content-type": "text/plain" }, body: key })),
  "a redirect": saying((key) => ({
    ...{ status: 302, headers: { location: `http://10.0.0.1/?key=${encodeURIComponent(key)}` }, body: "" },
  })),
};
const NATIVE: Record<string, Behaviour> = {
  "a refusal": saying((key) => nativeBlocks.image("IMAGE_SAFETY", `Your key ${key} may not.`)),
  "a block": saying((key) => nativeBlocks.prompt(key)),
  words: saying((key) => nativeBlocks.words(`Your key is ${key}.`)),
  "an invalid request": saying((key) => nativeErrors.invalid(`x-goog-api-key: ${key}`)),
  "a model version": (exchange) =>
    hostile.answering({ more: { modelVersion: `m ${hostile.credentialsOf(exchange)}` } })(exchange),
};
const OPENAI: Record<string, Behaviour> = {
  "a refusal": saying((key) => openaiErrors.refused(key)),
  "an invalid request": saying((key) => openaiErrors.invalid(`Bearer ${key} is wrong`, key, key)),
  "an address": async (exchange) => {
    const key = encodeURIComponent(hostile.credentialsOf(exchange));
    return hostile.answering({ url: `http://127.0.0.1:2/image.png?key=${key}` })(exchange);
  },
  "a usage": (exchange) =>
    hostile.answering({ more: { usage: { cost: hostile.credentialsOf(exchange) } } })(exchange),
  "a revised prompt": async (exchange) => {
    const answer = await exchange.make();
    const body = JSON.parse(String(answer.body));
    body.data[0].revised_prompt = `${exchange.request.prompt} ${hostile.credentialsOf(exchange)}`;
    exchange.send({ ...answer, body: JSON.stringify(body) });
  },
};

const fakes: FakeUpstream[] = [];
const ids: string[] = [];
let chain: Chain;

beforeAll(async () => {
  const providers: object[] = [];
  const add = (fake: FakeUpstream, behaviour: Behaviour, entry: object, upstreamId: string) => {
    const id = `row-${ids.length + 1}`;
    fake.setBehaviour(behaviour);
    fakes.push(fake);
    ids.push(id);
    providers.push({ name: id, timeoutSeconds: 5, models: { [id]: upstreamId }, ...entry });
  };
  const apiKeyEnv = "CANARY_API_KEY";
  for (const behaviour of [...Object.values(EVERYWHERE), ...Object.values(NATIVE)]) {
    const fake = await startNative({ key: CANARY });
    const entry = { type: "native", baseUrl: fake.url, apiKeyEnv, keyHeader: "x-goog-api-key" };
    add(fake, behaviour, entry, "gemini-3-pro-image");
  }
  for (const behaviour of [...Object.values(EVERYWHERE), ...Object.values(OPENAI)]) {
    const fake = await startOpenai({ key: CANARY, dialect: DIALECTS.local });
    add(fake, behaviour, { type: "openai", baseUrl: `${fake.url}/v1`, apiKeyEnv }, DIALECTS.local.model);
  }
  for (const behaviour of Object.values(EVERYWHERE)) {
    const fake = await startSdapi({ login: `painter:${PASSWORD}` });
    const entry = { type: "sdapi", baseUrl: fake.url, userEnv: "CANARY_USER", passwordEnv: "CANARY_SECRET" };
    add(fake, behaviour, entry, "v1-5-pruned");
  }
  const limits = { concurrentRequests: 0 };
  chain = await Chain.start({ models: ids.map((id) => model(id)), providers, limits }, ENV);
});

afterAll(async () => {
  await chain?.close();
  for (const fake of fakes) await fake.close();
});

/** Every file below a directory, with the names as they would be reported. */
async function filesBelow(directory: string): Promise<[string, Buffer][]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(files.map(async (file): Promise<[string, Buffer]> => [file, await readFile(file)]));
}

describe("an upstream that repeats the key", () => {
  it("in whatever it sends, brings it to no caller, log, file, database or command", async () => {
    const told: [string, string][] = [];
    const batches = await Promise.all(ids.map((id) => chain.submit(id, [`a picture of ${id}`])));
    const live = ids.map(async (id): Promise<[string, string]> => {
      const answer = await chain.realtime(id, [{ text: `${id} now` }]);
      return [`real time of ${id}`, `${JSON.stringify([...answer.headers])} ${await answer.text()}`];
    });
    told.push(...(await Promise.all(live)));
    for (const [at, { id }] of batches.entries()) {
      const settled = await chain.until(
        id,
        (batch) => batch.waiting != null || batch.success_count + batch.fail_count === 1,
      );
      told.push([`batch of ${ids[at]}`, JSON.stringify([settled, await chain.items(id)])]);
    }
    for (const path of ["/metrics", "/readyz", "/v1/images/batches/models", "/v1/models"])
      told.push([path, await (await chain.ask(path)).text()]);
    for (const command of [
      ["providers"],
      ["providers", "--json"],
      ["providers", "--probe"],
      ["doctor"],
      ["admin", "usage"],
    ]) {
      const { stdout, stderr } = await chain.run(command);
      told.push([command.join(" "), stdout + stderr]);
    }
    await chain.end("SIGTERM");
    told.push(["output of the service", chain.output]);

    const has = (bytes: Buffer) => findSecrets(bytes, SECRETS).map(({ form }) => form);
    const heard = told.map(([where, text]) => [where, has(Buffer.from(text))] as const);
    const written = (await filesBelow(chain.data)).map(([file, bytes]) => [file, has(bytes)] as const);
    const own = (file: string) => file.endsWith("credentials.json");
    expect([...heard, ...written].filter(([where, forms]) => forms.length > 0 && !own(where))).toEqual([]);
    // Every upstream got the key and could repeat it.
    const spoken = fakes.map(({ requests }) => JSON.stringify(requests.map(({ headers }) => headers)));
    expect(spoken.filter((headers) => !SECRETS.some((secret) => headers.includes(secret)))).toEqual([]);
  });
});
