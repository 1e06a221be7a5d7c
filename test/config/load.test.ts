import { writeFileSync } from "node:fs";
import { join } from "node:path";
import express from "express";
import { describe, expect, it } from "vitest";
import { loadConfig, parseConfig } from "../../src/config/load.ts";
import { dataDirectoryOf } from "../../src/config/paths.ts";
import { isProceduralOnly } from "../../src/contract/data-directory.ts";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { tempDir } from "../support/temp-dir.ts";

describe("the configuration", () => {
  it("fills in every default when there is no file", async () => {
    const config = loadConfig({ cwd: await tempDir() });
    expect(config.limits).toEqual({ ...DEFAULT_LIMITS, unknownOutcome: "stop", budget: null });
    expect(config.models.map((m) => [m.id, m.prices["1K"]])).toEqual([
      ["vendorx-3.1-flash-image", 0.067],
      ["vendorx-3.1-flash-image-preview", 0.067],
      ["vendorx-3-pro-image", 0.134],
      ["vendorx-3-pro-image-preview", 0.134],
      ["vendorx-3.1-flash-lite-image", 0.0336],
    ]);
    expect(config.providers).toMatchObject([{ name: "procedural", type: "procedural", concurrency: 2 }]);
    expect(config).toMatchObject({ baseUrl: null, server: { host: "127.0.0.1", port: 8787 } });
    expect(Object.isFrozen(config)).toBe(true);
  });

  it("takes comments and trailing commas, and keeps the defaults of what a file leaves out", async () => {
    const cwd = await tempDir();
    const text = '{\n  // ours\n  "limits": { "zipItems": 7, },\n}';
    writeFileSync(join(cwd, "imgbatch.config.json"), text);
    const { limits } = loadConfig({ cwd });
    expect([limits.zipItems, limits.itemsPerBatch]).toEqual([7, 200]);
  });

  it("puts a named upstream and vendor in the place of the file's, and keeps the rest", async () => {
    const cwd = await tempDir();
    const file = { models: [{ id: "mine" }], limits: { zipItems: 7 }, vendor: { keyHeaders: ["x-mine"] } };
    writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify(file));
    const config = loadConfig({ cwd, file: "imgbatch.config.json", upstream: "openai", vendor: "google" });
    expect(config.providers.map(({ name }) => name)).toEqual(["openai"]);
    expect(config.models.map(({ id }) => id)).not.toContain("mine");
    expect(config).toMatchObject({
      limits: { zipItems: 7 },
      vendor: { preset: "google", keyHeaders: ["x-mine"] },
      groups: [{ name: "default", batchDiscount: 1 }],
    });
    writeFileSync(join(cwd, "imgbatch.config.json"), '{"vendor": 5}');
    expect(() => loadConfig({ cwd, vendor: "google" })).toThrow("vendor: ");
    writeFileSync(join(cwd, "imgbatch.config.json"), "[]");
    expect(() => loadConfig({ cwd, upstream: "openai" })).toThrow("imgbatch.config.json: ");
  });

  it.each([
    [{ limit: {} }, 'Unrecognized key: "limit"'],
    [{ limits: { zipItem: 1 } }, 'limits: Unrecognized key: "zipItem"'],
    [{ server: { port: "80" } }, "server.port: "],
    [{ server: { publicUrl: "images.example.org" } }, "server.publicUrl: must be like https://host"],
    [{ server: { publicUrl: "ftp://images.example.org" } }, "server.publicUrl: must be like https://host"],
    [{ server: { trustProxy: "loopback" } }, "server.trustProxy: must be true, false, the number of proxies"],
    [{ server: { trustProxy: 0 } }, "server.trustProxy: "],
    [{ server: { trustProxy: 1.5 } }, "server.trustProxy: "],
    [{ server: { trustProxy: null } }, "server.trustProxy: must be true, false"],
    [{ server: { trustProxy: [1] } }, "server.trustProxy: "],
    [{ server: { trustProxy: ["loopback", "10.0.0.0/33"] } }, "server.trustProxy.1: must be an address"],
    [{ server: { trustProxy: ["10.0.0.0/0"] } }, "server.trustProxy.0: must be an address"],
    [{ server: { trustProxy: ["::1/129"] } }, "server.trustProxy.0: must be an address"],
    [{ server: { trustProxy: ["proxy.lan"] } }, "server.trustProxy.0: must be an address"],
    [{ models: [{ id: "a" }, { id: "a" }] }, "models: has two models with one id"],
    [{ providers: [{ name: "p", type: "magic" }] }, "providers.0.type: "],
  ])("[CONF-3] %j is an error that names the file and the key", (value, problem) => {
    expect(() => parseConfig(value, "some/file.json")).toThrow(problem);
    expect(() => parseConfig(value, "some/file.json")).toThrow("some/file.json: ");
  });

  it.each([
    [true],
    [false],
    [2],
    [[]],
    [
      [
        "127.0.0.1",
        "10.0.0.0/8",
        "::1",
        "fc00::/7",
        "::ffff:10.0.0.1",
        "loopback",
        "linklocal",
        "uniquelocal",
      ],
    ],
  ])("server.trustProxy takes what Express takes: %j", (trustProxy) => {
    const { server } = parseConfig({ server: { trustProxy } }, "test");
    expect(() => express().set("trust proxy", server.trustProxy)).not.toThrow();
    expect(server).toEqual({ host: "127.0.0.1", port: 8787, publicUrl: null, trustProxy, corsOrigins: [] });
  });

  it("[CONF-3] broken text is an error that names the line, and a named file must be there", async () => {
    const cwd = await tempDir();
    writeFileSync(join(cwd, "c.json"), '{\n"a": \n}');
    expect(() => loadConfig({ file: "c.json", cwd })).toThrow(/c\.json:3: /);
    expect(() => loadConfig({ file: "other.json", cwd })).toThrow("cannot be read");
  });

  it("the data directory is the flag, else the environment, else the user's own", () => {
    const environment = { baseUrl: undefined, apiKey: undefined, dataDirectory: "from-env" };
    expect(dataDirectoryOf("flag", environment, "/w")).toBe("/w/flag");
    expect(dataDirectoryOf(undefined, environment, "/w")).toBe("/w/from-env");
    expect(dataDirectoryOf(undefined, { ...environment, dataDirectory: undefined }, "/w")).toContain(
      "imgbatch",
    );
  });
});

it.each([
  ["openai", "https://a.example", "https://a.example/v1"],
  ["openai", "https://a.example/?v=1", "https://a.example/v1?v=1"],
  ["openai", "https://a.example/v1/images/generations", "https://a.example/v1"],
  ["openai", "https://a.example/images/edits/", "https://a.example/v1"],
  ["openai", "https://a.example/openai/v1?v=1", "https://a.example/openai/v1?v=1"],
  ["native", "https://a.example/v1beta/?v=1", "https://a.example?v=1"],
])("the address of an upstream is read as other tools write it: %s at %s", (type, baseUrl, read) => {
  const { providers } = parseConfig({ providers: [{ name: "p", type, baseUrl }] }, "test");
  expect(providers).toMatchObject([{ baseUrl: read }]);
});

it("the address of an upstream holds no password, which no message repeats", () => {
  const read = (baseUrl: string) => () =>
    parseConfig({ providers: [{ name: "p", type: "openai", baseUrl }] }, "test");
  for (const baseUrl of [
    "https://me:hidden@a.example/v1",
    "https://hidden@a.example/v1",
    "https://a.example/#hidden",
  ]) {
    expect(read(baseUrl)).toThrow(/providers\.0\.baseUrl: .*apiKeyEnv/);
    expect(read(baseUrl)).not.toThrow(/hidden/);
  }
  expect(read("https://a.example/v1/@me")).not.toThrow();
});

it("there is play money only where nothing but drawings is made", () => {
  const of = (providers?: object[]) => isProceduralOnly(parseConfig(providers ? { providers } : {}, "test"));
  expect([of(), of([]), of([{ name: "p", type: "procedural", models: ["*"] }])]).toEqual([true, false, true]);
});
