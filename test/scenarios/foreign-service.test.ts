import { readdir, readFile, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { expandedCustomIds } from "../../src/contract/limits.ts";
import { FAKE_KEY, packZip, png } from "../support/fake-service.ts";
import { listen } from "../support/listen.ts";
import { cleanEnvironment, imgbatch } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

/** As long as no path of a URL can be, with what only an encoded one can hold. */
const ID = "eu/batch~2026:α";
const ITEM_PAGE = 2;

interface Sent {
  custom_id: string;
  prompt: string;
  output_count?: number;
}

interface ForeignService {
  url: string;
  /** `METHOD path` of each request. */
  seen: string[];
  /** The bodies of all creates. */
  created: { model: string; items: Sent[] }[];
  close(): Promise<void>;
}

/**
 * A service of the same API from another maker, as its recorded answers are: ids of another form, other words for
 * statuses, few fields and unknown ones, no cursor, no totals, no replay header, no ETag, no ranges, no HEAD, errors and
 * a manifest of another shape, other names in the ZIP, and a pause that is asked for by date.
 */
async function startForeignService(): Promise<ForeignService> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    foreign.seen.push(`${request.method} ${request.url}`);
    await answer(foreign, request, Buffer.concat(chunks).toString(), response);
  });
  const foreign: ForeignService = { ...(await listen(server)), seen: [], created: [] };
  return foreign;
}

async function answer(
  foreign: ForeignService,
  request: IncomingMessage,
  body: string,
  response: ServerResponse,
): Promise<void> {
  const url = new URL(request.url ?? "", "http://foreign");
  const path = url.pathname.replace("/v1/images/batches", "");
  const own = `/${encodeURIComponent(ID)}`;
  const times = foreign.seen.filter((line) => line === `${request.method} ${request.url}`).length;
  if (request.method === "POST" && path === "") return json(response, 201, create(foreign, body));
  if (request.method !== "GET") return json(response, 405, { detail: "Method Not Allowed" });
  if (path === "/models")
    return json(response, 200, { data: [{ id: "vendorx-3.1-flash-image", owner: "x" }] });
  if (path === own) return look(response, times);
  if (path === `${own}/items`) return json(response, 200, itemPage(foreign, url));
  if (path === `${own}/download`) return download(foreign, response, times);
  const [, customId] = new RegExp(`^${own}/items/([^/]+)/content$`).exec(path) ?? [];
  const item = itemsOf(foreign).find((each) => each.custom_id === decodeURIComponent(customId ?? ""));
  if (item === undefined) return json(response, 404, { message: "not here" });
  response.writeHead(200, { "content-type": "application/octet-stream" }).end(png(item.custom_id));
}

function json(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { "content-type": "text/plain" }).end(JSON.stringify(value));
}

function create(foreign: ForeignService, body: string): object {
  foreign.created.push(JSON.parse(body));
  return { id: ID, status: "submitting", region: "eu" };
}

function look(response: ServerResponse, times: number): void {
  const status = ["submitting", "running", "finalizing"][times - 1] ?? "completed";
  json(response, 200, { id: ID, status, region: "eu", item_count: null, success_count: "all", error: "" });
}

function itemsOf({ created }: ForeignService): { custom_id: string; isBlocked: boolean }[] {
  return (created[0]?.items ?? []).flatMap(({ custom_id, prompt, output_count = 1 }) =>
    expandedCustomIds(custom_id, output_count).map((id) => ({
      custom_id: id,
      isBlocked: prompt.includes("blocked"),
    })),
  );
}

/** Its pages are as short as it likes, and it says only whether there are more. */
function itemPage(foreign: ForeignService, url: URL): object {
  const all = itemsOf(foreign);
  const at = Number(url.searchParams.get("cursor") ?? 0);
  const data = all
    .slice(at, at + ITEM_PAGE)
    .map(({ custom_id, isBlocked }) =>
      isBlocked
        ? { custom_id, status: "failed", error: { message: "not allowed" } }
        : { custom_id, status: "succeeded", seed: 7 },
    );
  return { data, has_more: at + ITEM_PAGE < all.length };
}

/** `a` and `b` go by their names; the third is only numbered, so that nobody can tell whose it is. */
async function download(foreign: ForeignService, response: ServerResponse, times: number): Promise<void> {
  if (times === 1) {
    const soon = new Date(Date.now() + 1000).toUTCString();
    response.writeHead(429, { "retry-after": soon, "content-type": "text/html" }).end("<h1>Slow down</h1>");
    return;
  }
  const good = itemsOf(foreign).filter((item) => !item.isBlocked);
  const files = good.map(({ custom_id }, index) => ({
    name: index < 2 ? `results/${custom_id}.PNG` : `results/${index}.png`,
    data: png(custom_id),
  }));
  const manifest = { version: 3, results: good.map(({ custom_id }) => ({ ref: custom_id })) };
  const more = [
    { name: "results/manifest.json", data: Buffer.from(JSON.stringify(manifest)) },
    { name: "README.txt", data: Buffer.from("thanks") },
  ];
  // Neither a length nor an ETag, and no ranges.
  response.writeHead(200, { "content-type": "application/x-zip-compressed" });
  response.end(await packZip([...files, ...more]));
}

it("a whole run against a service of another maker: every image here, checked as far as it can be", async () => {
  const foreign = await startForeignService();
  onTestFinished(() => foreign.close());
  const cwd = await tempDir();
  const prompts = [
    { custom_id: "a", prompt: "a cat" },
    { custom_id: "bad", prompt: "blocked" },
    { custom_id: "b", prompt: "a dog", output_count: 2 },
  ];
  await writeFile(join(cwd, "p.jsonl"), prompts.map((prompt) => JSON.stringify(prompt)).join("\n"));
  const env = cleanEnvironment({ IMGBATCH_BASE_URL: foreign.url, IMGBATCH_API_KEY: FAKE_KEY });
  const submit = () =>
    imgbatch(["submit", "p.jsonl", "--json", "--interval", "20ms", "--allow-failures", "1"], { cwd, env });

  const first = await submit();
  expect([first.code, first.stderr]).toEqual([0, expect.stringContaining("3 of 4 images")]);
  const document = JSON.parse(first.stdout);
  expect(document).toMatchObject({ ok: true, replayed: false, counts: { total: 4, success: 3, failed: 1 } });
  expect(document.batches[0]).toMatchObject({ status: "completed", region: "eu" });

  const text = await readFile(join(cwd, "p-images", "results.jsonl"), "utf8");
  const lines = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(
    lines.map(({ custom_id, status, verified, files }) => [custom_id, status, verified, files.length]),
  ).toEqual([
    ["a", "success", "crc32", 1],
    ["bad", "failed", undefined, 0],
    ["b_01", "success", "crc32", 1],
    ["b_02", "success", null, 1],
  ]);
  expect(lines[1].error).toEqual({ code: "UNKNOWN", message: "not allowed", source: null });
  expect((await readdir(join(cwd, "p-images", "images"))).sort()).toEqual(["a.png", "b_01.png", "b_02.png"]);

  const posts = foreign.seen.filter((line) => line.startsWith("POST")).length;
  const again = await submit();
  expect([again.code, JSON.parse(again.stdout).replayed, JSON.parse(again.stdout).fetched_count]).toEqual([
    0,
    true,
    0,
  ]);
  expect(foreign.seen.filter((line) => line.startsWith("POST"))).toHaveLength(posts);
});
