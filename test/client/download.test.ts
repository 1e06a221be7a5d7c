import { readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import { downloadFile } from "../../src/client/download.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";

const BYTES = Buffer.from(Array.from({ length: 200_000 }, (_, i) => (i * 7919) % 251));
const ETAG = '"v1"';

interface Seen {
  range: string | undefined;
  ifRange: string | undefined;
}

/** A file server that cuts its first answers short, `cuts` bytes into each. */
async function fileServer(
  cuts: number[],
  options: { etag?: string | null; listener?: RequestListener; timeoutMs?: number } = {},
) {
  const seen: Seen[] = [];
  const state = { etag: options.etag === undefined ? ETAG : options.etag };
  const serve: RequestListener = (request, response) => {
    const { range, "if-range": ifRange } = request.headers as Record<string, string | undefined>;
    seen.push({ range, ifRange });
    const start = range !== undefined && ifRange === state.etag ? Number(/\d+/.exec(range)?.[0]) : 0;
    const part = BYTES.subarray(start);
    const headers = { "content-length": part.length, ...(state.etag === null ? {} : { etag: state.etag }) };
    const contentRange = { "content-range": `bytes ${start}-${BYTES.length - 1}/${BYTES.length}` };
    response.writeHead(start > 0 ? 206 : 200, start > 0 ? { ...headers, ...contentRange } : headers);
    const cut = cuts.shift();
    if (cut === undefined) response.end(part);
    else response.write(part.subarray(0, cut), () => setImmediate(() => request.socket.destroy()));
  };
  const server = createServer(options.listener ?? serve);
  const baseUrl = await listening(server);
  const http = createServiceHttp({
    baseUrl,
    apiKey: "k",
    clock: new InstantClock(),
    random: () => 0,
    timeoutMs: options.timeoutMs ?? 60_000,
  });
  const dir = await tempDir();
  const target = join(dir, "batch.zip");
  return { seen, state, http, dir, target, get: () => downloadFile({ http, path: "/file", target }) };
}

it("[HTTP-19] a broken download goes on where it stopped, and the file is whole under its name", async () => {
  const { seen, dir, target, get } = await fileServer([70_000, 50_000]);
  expect(await get()).toMatchObject({ bytes: BYTES.length, etag: ETAG });
  expect(await readFile(target)).toEqual(BYTES);
  expect(await readdir(dir)).toEqual(["batch.zip"]);
  expect(seen[0]).toEqual({ range: undefined, ifRange: undefined });
  expect(seen.slice(1).every((each) => each.ifRange === ETAG && /^bytes=\d+-$/.test(each.range ?? ""))).toBe(
    true,
  );
});

it("[HTTP-19] a later process resumes the part of an earlier one", async () => {
  const { seen, dir, target, get } = await fileServer([]);
  await writeFile(`${target}.part`, BYTES.subarray(0, 123_456));
  await writeFile(`${target}.part.etag`, ETAG);
  await get();
  expect(seen).toEqual([{ range: "bytes=123456-", ifRange: ETAG }]);
  expect(await readFile(target)).toEqual(BYTES);
  expect(await readdir(dir)).toEqual(["batch.zip"]);
});

/** An answer that begins at once and sends a piece now and then, at last an empty list. */
function dribble(piece: string, everyMs: number, count: number): RequestListener {
  return (_request, response) => {
    response.flushHeaders();
    let left = count;
    const timer = setInterval(() => {
      if (left-- > 0) response.write(piece);
      else response.end("[]");
    }, everyMs);
    response.on("close", () => clearInterval(timer));
  };
}

it("a download that makes no progress ends, although bytes come", async () => {
  const { get } = await fileServer([], { listener: dribble(" ", 20, 1e6), timeoutMs: 500 });
  await expect(get()).rejects.toMatchObject({
    code: "NETWORK",
    message: expect.stringContaining("less than 8 KiB/s"),
  });
});

it("an answer that makes progress may take longer than it may take to begin", async () => {
  const listener = dribble(" ".repeat(16_384), 100, 15);
  const { get, http } = await fileServer([], { listener, timeoutMs: 1000 });
  const [file, { json }] = await Promise.all([get(), http.json({ method: "GET", path: "/list" })]);
  expect([file.bytes, json]).toEqual([15 * 16_384 + 2, []]);
});

it("other bytes under the same address are never joined to the old part", async () => {
  const { state, target, get } = await fileServer([]);
  await writeFile(`${target}.part`, "of another version");
  await writeFile(`${target}.part.etag`, ETAG);
  state.etag = '"v2"';
  await get();
  expect(await readFile(target)).toEqual(BYTES);
});

it("without a strong ETag every attempt starts at the beginning", async () => {
  for (const etag of [null, 'W/"weak"']) {
    const { seen, target, get } = await fileServer([1000], { etag });
    await get();
    expect(seen.every((each) => each.range === undefined)).toBe(true);
    expect(await readFile(target)).toEqual(BYTES);
  }
});

it("a range that cannot be satisfied starts again", async () => {
  let requests = 0;
  const listener: RequestListener = (request, response) => {
    requests++;
    if (request.headers.range === undefined) response.end(BYTES);
    else response.writeHead(416).end();
  };
  const { target, get } = await fileServer([], { listener });
  await writeFile(`${target}.part`, "x");
  await writeFile(`${target}.part.etag`, ETAG);
  await get();
  expect(await readFile(target)).toEqual(BYTES);
  expect(requests).toBe(2);
});

it("a download that keeps breaking ends as NETWORK and leaves its part for the next time", async () => {
  const { dir, get } = await fileServer([90_000, 10_000, 10_000, 10_000]);
  await expect(get()).rejects.toMatchObject({ code: "NETWORK" });
  expect((await readdir(dir)).sort()).toEqual(["batch.zip.part", "batch.zip.part.etag"]);
});

it("what cannot be resumed is not left behind", async () => {
  const { dir, get } = await fileServer([90_000, 90_000, 90_000, 90_000], { etag: null });
  await expect(get()).rejects.toMatchObject({ code: "NETWORK" });
  expect(await readdir(dir)).toEqual([]);
});

it("bytes that were encoded on the way are not resumed in the middle", async () => {
  const seen: (string | undefined)[] = [];
  const packed = gzipSync(BYTES);
  const listener: RequestListener = (request, response) => {
    seen.push(request.headers.range);
    const headers = { etag: ETAG, "content-encoding": "gzip", "content-length": packed.length };
    response.writeHead(200, headers);
    if (seen.length > 1) response.end(packed);
    else response.write(packed.subarray(0, -1000), () => request.socket.end());
  };
  const { target, get } = await fileServer([], { listener });
  await get();
  expect(seen).toEqual([undefined, undefined]);
  expect(await readFile(target)).toEqual(BYTES);
});

it("a rest with another ETag than the part's is not joined to it", async () => {
  const listener: RequestListener = (request, response) => {
    if (request.headers.range === undefined) return void response.end(BYTES);
    const rest = Buffer.alloc(BYTES.length - 10, 1);
    const range = `bytes 10-${BYTES.length - 1}/${BYTES.length}`;
    response
      .writeHead(206, { etag: '"v2"', "content-range": range, "content-length": rest.length })
      .end(rest);
  };
  const { target, get } = await fileServer([], { listener });
  await writeFile(`${target}.part`, BYTES.subarray(0, 10));
  await writeFile(`${target}.part.etag`, ETAG);
  await get();
  expect(await readFile(target)).toEqual(BYTES);
});

it("a link in the place of the part is not followed", async () => {
  const { dir, target, get } = await fileServer([]);
  await writeFile(join(dir, "precious"), "mine");
  await symlink(join(dir, "precious"), `${target}.part`);
  await writeFile(`${target}.part.etag`, ETAG);
  await get();
  expect(await readFile(target)).toEqual(BYTES);
  expect(await readFile(join(dir, "precious"), "utf8")).toBe("mine");
});

it("a disk that refuses is SAVE_FAILED and not tried again", async () => {
  const { http, dir, seen } = await fileServer([]);
  const target = join(dir, "not", "there", "batch.zip");
  await expect(downloadFile({ http, path: "/file", target })).rejects.toMatchObject({ code: "SAVE_FAILED" });
  expect(seen).toHaveLength(1);
});
