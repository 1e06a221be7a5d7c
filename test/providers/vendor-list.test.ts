import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import type { UpstreamEntry } from "../../src/contract/provider-entries.ts";
import { findListed, hasVendorList, readVendorList } from "../../src/providers/vendor-list.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { tempDir } from "../support/temp-dir.ts";
import {
  byPath,
  bytes,
  depsWith,
  json,
  never,
  providerError,
  type Reply,
  scriptedServer,
} from "./upstream/scripted-server.ts";

const KEY = "canary-list-key-0123456789";
const VARIABLES = ["GEMINI_API_KEY", "OPENAI_API_KEY", "XAI_API_KEY", "OPENROUTER_API_KEY"];
const SECRETS = Object.fromEntries(VARIABLES.map((name) => [name, KEY]));

/** A vendor's list behind a stand-in that answers so. */
async function listAt(preset: string, reply: Reply, path = "") {
  const server = await scriptedServer(reply);
  const { providers } = parseConfig({ providers: [{ preset, baseUrl: server.url + path }] }, "test");
  const cacheDirectory = join(await tempDir(), "cache");
  const clock = new FakeClock();
  const source = (key = KEY) => ({
    entry: providers[0] as UpstreamEntry,
    deps: depsWith(Object.fromEntries(Object.keys(SECRETS).map((name) => [name, key])), clock),
    cacheDirectory,
    signal: never,
  });
  const read = (isFresh = true, key?: string) => readVendorList(source(key), { isFresh });
  return { server, read, clock, cacheDirectory, source };
}

const google = (names: readonly string[], more: object = {}) =>
  json({
    models: names.map((id) => ({
      name: `models/${id}`,
      displayName: id === "gemini-nano-banana-2.1" ? "Nano Banana 2.1" : id,
      supportedGenerationMethods: ["generateContent", "batchGenerateContent"],
    })),
    ...more,
  });

describe("a vendor's list of models", () => {
  it("of Google is read to its last page, each model once, with the key in the vendor's header", async () => {
    const { server, read } = await listAt("google", (seen, answer, socket) => {
      const isSecond = seen.url.includes("pageToken=p%2F2");
      const page = isSecond
        ? google(["gemini-9-image", "gemini-nano-banana-2.1"])
        : google(["gemini-nano-banana-2.1", "gemini-9-pro"], { nextPageToken: "p/2" });
      page(seen, answer, socket);
    });
    const list = await read();
    expect(list.map(({ id, isOfImages }) => [id, isOfImages])).toEqual([
      ["gemini-nano-banana-2.1", true],
      ["gemini-9-pro", false],
      ["gemini-9-image", true],
    ]);
    expect(server.seen.map(({ url }) => url)).toEqual([
      "/v1beta/models?pageSize=1000",
      "/v1beta/models?pageSize=1000&pageToken=p%2F2",
    ]);
    for (const { headers } of server.seen) expect(headers["x-goog-api-key"]).toBe(KEY);
  });

  it("of Google has for jobs the models that can be in jobs; a model that says nothing counts", async () => {
    const models = [
      { name: "models/a-image", supportedGenerationMethods: ["generateContent"] },
      { name: "models/b-image", supportedGenerationMethods: ["batchGenerateContent"] },
      { name: "models/c-image" },
    ];
    const of = async (preset: string) => {
      const { read } = await listAt(preset, json({ models }));
      return (await read()).map(({ id }) => id);
    };
    expect(await of("google")).toEqual(["a-image", "c-image"]);
    expect(await of("google-batch")).toEqual(["b-image", "c-image"]);
  });

  it("of OpenAI has the day of a model's end, and a dated id is another id of the plain one", async () => {
    const data = [
      { id: "gpt-image-2-2026-04-21", shutdown_date: "2027-01-01" },
      { id: "gpt-image-2", shutdown_date: null },
      { id: "gpt-image-1.5", shutdown_date: "2026-12-01" },
      { id: "gpt-image-9", shutdown_date: "soon" },
      { id: "gpt-9" },
    ];
    const { server, read } = await listAt("openai", json({ object: "list", data }), "/v1");
    const list = await read();
    expect(list.map(({ id, retires, isOfImages }) => [id, retires, isOfImages])).toEqual([
      ["gpt-image-2", null, true],
      ["gpt-image-1.5", "2026-12-01", true],
      ["gpt-image-9", null, true],
      ["gpt-9", null, false],
    ]);
    expect(findListed(list, "gpt-image-2-2026-04-21")?.id).toBe("gpt-image-2");
    expect(server.seen[0]).toMatchObject({ url: "/v1/models", headers: { authorization: `Bearer ${KEY}` } });
  });

  it("of xAI and OpenRouter is at an address of its own", async () => {
    const xai = await listAt(
      "xai",
      byPath([
        [
          "GET /v1/image-generation-models",
          json({ models: [{ id: "grok-x", aliases: ["grok-latest", 5] }] }),
        ],
      ]),
      "/v1",
    );
    expect(findListed(await xai.read(), "grok-latest")).toMatchObject({ id: "grok-x", isOfImages: true });
    const router = await listAt(
      "openrouter",
      byPath([["GET /api/v1/images/models", json({ data: [{ id: "google/gemini-nano-banana-2.1" }] })]]),
      "/api/v1",
    );
    expect((await router.read()).map(({ id }) => id)).toEqual(["google/gemini-nano-banana-2.1"]);
  });

  it("is not to be had without the key, or from a vendor whose list is not known", async () => {
    const { source } = await listAt("google", json({}));
    expect([hasVendorList(source()), hasVendorList(source(""))]).toEqual([true, false]);
    const together = await listAt("together", json({}));
    expect(hasVendorList(together.source())).toBe(false);
    expect((await providerError(together.read())).code).toBe("INVALID_ARGUMENT");
    expect(together.server.seen).toEqual([]);
  });

  let page = 0;
  const endless: Reply = (seen, answer, socket) =>
    google([`m-${page}-image`], { nextPageToken: `${page++}` })(seen, answer, socket);
  it.each<[string, Reply, RegExp]>([
    ["pages that never end", endless, /more than 50 pages of models/],
    ["the same page for ever", google(["m"], { nextPageToken: "x" }), /the same page of models again/],
    ["no models at all", google([]), /a list of no models/],
    ["other JSON", json({ models: 5 }), /a list without models/],
    ["HTML", bytes("<html>hello</html>", 200), /without JSON/],
    ["a body without an end", bytes(Buffer.alloc(17 * 1024 * 1024, 32)), /more than \d+ bytes/],
    ["a redirect", bytes("", 302, { location: "http://127.0.0.1:1/" }), /HTTP 302/],
    ["a refusal that repeats the key", json({ error: { message: `bad ${KEY}` } }, 401), /HTTP 401/],
  ])("is refused with %s, in words without the key", async (_what, reply, words) => {
    const { read, cacheDirectory } = await listAt("google", reply);
    const error = await providerError(read());
    expect(error.message).toMatch(words);
    expect(`${error.message} ${error.said}`).not.toContain(KEY);
    expect(() => readdirSync(cacheDirectory)).toThrow("ENOENT");
  });

  it("leaves out entries that are no models", async () => {
    const models = [null, 5, {}, { name: 5 }, { name: "models/bad id" }, { name: "models/good-image" }];
    const { read } = await listAt("google", json({ models }));
    expect((await read()).map(({ id }) => id)).toEqual(["good-image"]);
  });

  it("is kept for an hour for the same address and key, readable by its owner alone and without the key", async () => {
    const { server, read, clock, cacheDirectory } = await listAt("google", google(["m-image"]));
    const asked = async (...how: [boolean?, string?]) => {
      const before = server.seen.length;
      expect((await read(...how)).map(({ id }) => id)).toEqual(["m-image"]);
      return server.seen.length - before;
    };
    expect([await asked(false), await asked(false), await asked(true)]).toEqual([1, 0, 1]);
    expect([await asked(false, "another-key-0123456789"), await asked(false)]).toEqual([1, 0]);
    const files = readdirSync(cacheDirectory).map((name) => join(cacheDirectory, name));
    expect(files).toHaveLength(2);
    for (const file of files) {
      expect(statSync(file).mode & 0o077).toBe(0);
      expect(`${file} ${readFileSync(file, "utf8")}`).not.toContain(KEY);
    }
    expect(statSync(cacheDirectory).mode & 0o077).toBe(0);
    await clock.advance(3_600_001);
    expect(await asked(false)).toBe(1);
    for (const damage of [
      "",
      "{",
      '{"at_ms":0,"models":[]}',
      '{"at_ms":1e300,"models":[{"id":"x"}]}',
      "[]",
    ]) {
      for (const file of files) writeFileSync(file, damage);
      expect([damage, await asked(false)]).toEqual([damage, 1]);
    }
  });
});
