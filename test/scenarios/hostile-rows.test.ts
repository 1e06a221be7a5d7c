import { createHash } from "node:crypto";
import { crc32, deflateSync } from "node:zlib";
import express from "express";
import { describe, expect, it } from "vitest";
import { FIXED_LIMITS } from "../../src/contract/limits.ts";
import { Feed } from "../../src/domain/feed.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { beginExchange } from "../../src/server/http/exchange.ts";
import { listen } from "../../src/server/listen.ts";
import { createLog } from "../../src/service/pino-log.ts";
import { expectProperAnswer } from "../support/error-body.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { exchange, requestText } from "../support/raw-http.ts";
import { MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";
import { readZip } from "../support/zip.ts";

async function codeOf(answer: Response): Promise<string | null> {
  const facts = {
    status: answer.status,
    requestId: answer.headers.get("x-request-id"),
    body: await answer.text(),
  };
  return expectProperAnswer(facts, ["BATCH_IMAGE_QUEUE_FAILED"]);
}

const postText = (service: TestService, body: string | Uint8Array, headers: Record<string, string> = {}) =>
  service.ask("", {
    method: "POST",
    body,
    headers: { "content-type": "application/json", ...headers },
  } as RequestInit);

describe("names that try something", () => {
  it.each([
    "../x",
    "..\\x",
    "a/b",
    "/etc/passwd",
    "C:\\x",
    "..",
    ".",
    "a\0b",
    "a\r\nX-Evil: 1",
    "\u001b[2J",
    "\ud800",
    "",
    "x".repeat(129),
  ])("[HOSTILE-2] the id %j is refused", async (custom_id) => {
    const service = await startTestService({ workers: false });
    const answer = await service.create({ model: MODEL, items: [{ custom_id, prompt: "a" }] });
    expect(await codeOf(answer)).toBe("BATCH_IMAGE_INVALID_ITEMS");
  });

  it("[HOSTILE-2] ids that are allowed go through headers and ZIP without leading anywhere", async () => {
    const provider = new FakeProvider({ concurrency: 8 });
    const png = await tinyPng();
    provider.answer = async () => made(png);
    const service = await startTestService({ providers: [provider] });
    const ids = [
      "狐.png",
      '";x="',
      "a; filename=b",
      "%2e%2e%2f",
      "...",
      "CON",
      "nul.txt",
      "~/.ssh",
      "a:b",
      "\u202egnp.x",
      "a ",
      "é",
      "e\u0301",
    ];
    const allowed = ids.filter((id) => !id.includes("/"));
    const batch = await service.submit({
      model: MODEL,
      task_name: '狐"\r\n/..',
      items: allowed.map((custom_id) => ({ custom_id, prompt: "a" })),
    });
    await service.until(batch.id);
    for (const id of allowed) {
      const answer = await service.ask(`/${batch.id}/items/${encodeURIComponent(id)}/content`);
      expect([id, answer.status]).toEqual([id, 200]);
      expect(answer.headers.get("content-disposition")).toMatch(
        /^attachment; filename="[ !#-[\]-~]+"; filename\*=UTF-8''[^\s;"]+$/,
      );
      await answer.arrayBuffer();
    }
    const zip = await service.ask(`/${batch.id}/download`);
    expect(zip.headers.get("content-disposition")).toMatch(
      /^attachment; filename="[^"\\]+"; filename\*=UTF-8''[^\s;"]+$/,
    );
    const names = [...(await readZip(Buffer.from(await zip.arrayBuffer()))).keys()];
    expect(new Set(names.map((name) => name.normalize("NFC").toLowerCase())).size).toBe(allowed.length + 2);
    for (const name of names) expect(name).not.toMatch(/\.\.|^\/|\\|images\/\.|[:*?"<>|\p{Cc}]/u);
    expect((await service.ask(`/${batch.id}/items/%2e%2e%2f%2e%2e%2fimgbatch.db/content`)).status).toBe(404);
  });
});

describe("reference images that try something", () => {
  const png = async () => (await tinyPng()).toString("base64");
  it.each<[string, (good: string) => string]>([
    ["without its padding", (good) => good.replace(/=+$/, "").slice(0, -1)],
    ["with a line break", (good) => `${good.slice(0, 20)}\n${good.slice(20)}`],
    ["with a blank behind it", (good) => `${good} `],
    ["with padding too much", (good) => `${good}==`],
    ["of the alphabet for URLs", (good) => `${good.slice(0, -8)}-_-_${good.slice(-4)}`],
    ["with bits to spare", (good) => `${good.slice(0, -4)}aGl=`],
    ["with something behind its end", (good) => `${good}!!##`],
    ["of one character", () => "a"],
    ["of a list", (good) => [good] as unknown as string],
  ])("Base64 %s is refused", async (_, change) => {
    const service = await startTestService({ workers: false });
    const data = change(await png());
    const body = {
      model: MODEL,
      items: [{ prompt: "a", reference_images: [{ mime_type: "image/png", data }] }],
    };
    expect(await codeOf(await service.create(body))).toBe("BATCH_IMAGE_INVALID_REFERENCE_IMAGE");
    // The same in a large body, which is read on another path.
    const large = await service.create({ ...body, pad: "x".repeat(1_200_000) });
    expect(await codeOf(large)).toBe("BATCH_IMAGE_INVALID_REFERENCE_IMAGE");
  });

  it.each<[string, string, () => Promise<Buffer> | Buffer]>([
    ["a flood of pixels", "image/png", () => hugePng(17_000)],
    ["a flood below the decoder's own bound", "image/png", () => hugePng(12_000)],
    ["an SVG with entities", "image/png", () => Buffer.from(BILLION_LAUGHS)],
  ])("%s is refused", async (_, mime_type, bytes) => {
    const service = await startTestService({ workers: false });
    const data = (await bytes()).toString("base64");
    const body = { model: MODEL, items: [{ prompt: "a", reference_images: [{ mime_type, data }] }] };
    expect(await codeOf(await service.create(body))).toBe("BATCH_IMAGE_INVALID_REFERENCE_IMAGE");
  });

  it("text and colour profiles that unpack to hundreds of megabytes take no such memory", async () => {
    const service = await startTestService({ workers: false });
    const bomb = deflateSync(Buffer.alloc(200 * 1024 * 1024), { level: 1 });
    const before = process.memoryUsage.rss();
    for (const [type, head] of [
      ["zTXt", "Comment\0\0"],
      ["iCCP", "profile\0\0"],
      ["iTXt", "Comment\0\x01\0\0\0"],
    ] as const) {
      const data = withChunk(
        await tinyPng(),
        type,
        Buffer.concat([Buffer.from(head, "latin1"), bomb]),
      ).toString("base64");
      const body = {
        model: MODEL,
        items: [{ prompt: "a", reference_images: [{ mime_type: "image/png", data }] }],
      };
      // Either is right: the picture itself is sound.
      expect(["BATCH_IMAGE_INVALID_REFERENCE_IMAGE", "BATCH_IMAGE_QUEUE_FAILED"]).toContain(
        await codeOf(await service.create(body)),
      );
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
  });
});

describe("JSON that tries something", () => {
  const body = (rest: string) => `{"model":"${MODEL}","items":[{"prompt":"a"}],${rest}}`;
  it.each([
    ["a name twice: the last one counts", '"image_size":"2K","image_size":"1K"', "BATCH_IMAGE_QUEUE_FAILED"],
    ["a name twice: the last one counts", '"image_size":"1K","image_size":"2K"', "BATCH_IMAGE_INVALID_ITEMS"],
    ["a prototype", '"__proto__":{"items":[],"image_size":"2K"}', "BATCH_IMAGE_QUEUE_FAILED"],
    ["a constructor", '"constructor":{"prototype":{"isAdmin":true}}', "BATCH_IMAGE_QUEUE_FAILED"],
    [
      "a number that no double holds",
      '"items":[{"prompt":"a","output_count":9007199254740993}]',
      "BATCH_IMAGE_INVALID_ITEMS",
    ],
    ["a number without end", '"items":[{"prompt":"a","output_count":1e400}]', "BATCH_IMAGE_INVALID_ITEMS"],
    ["half a picture", '"items":[{"prompt":"a","output_count":1.5}]', "BATCH_IMAGE_INVALID_ITEMS"],
    ["less than nothing", '"items":[{"prompt":"a","output_count":-1}]', "BATCH_IMAGE_INVALID_ITEMS"],
    ["minus nothing", '"items":[{"prompt":"a","output_count":-0}]', "BATCH_IMAGE_INVALID_ITEMS"],
    ["metadata with a prototype", '"metadata":{"__proto__":{"a":"b"}}', "BATCH_IMAGE_INVALID_ITEMS"],
  ])("%s (%s)", async (_, rest, code) => {
    const service = await startTestService({ workers: false });
    expect(await codeOf(await postText(service, body(rest)))).toBe(code);
    expect(({} as { isAdmin?: unknown; image_size?: unknown }).isAdmin).toBeUndefined();
  });

  it.each(["gzip", "br", "deflate", "gzip, identity"])(
    "a body in %s is refused as what it is",
    async (encoding) => {
      const service = await startTestService({ workers: false });
      const answer = await postText(service, deflateSync("{}"), { "content-encoding": encoding });
      expect(await codeOf(answer)).toBe("UNSUPPORTED_MEDIA_TYPE");
      expect(await codeOf(await postText(service, "{}", { "content-encoding": "identity" }))).toBe(
        "BATCH_IMAGE_INVALID_MODEL",
      );
    },
  );
});

describe("keys and logs", () => {
  it("a key is found by its hash: the database holds none, and a part of one opens nothing", async () => {
    const service = await startTestService({ workers: false });
    const { api_key: key } = service.credentials;
    const { stores } = await openBeside(service.data);
    expect(await stores.read.keys.bySha256(createHash("sha256").update(key).digest("hex"))).not.toBeNull();
    expect(await stores.read.keys.bySha256(key)).toBeNull();
    for (const wrong of [
      key.slice(0, -1),
      `${key}x`,
      key.toUpperCase(),
      `${key.slice(0, 12)}${"A".repeat(36)}`,
      "' OR 1=1 --",
    ]) {
      const answer = await service.ask("/models", { headers: { authorization: `Bearer ${wrong}` } });
      expect(await codeOf(answer)).toBe("INVALID_API_KEY");
    }
  });

  it("whatever is asked, a line of the log is one JSON object", async () => {
    const written: string[] = [];
    const log = createLog({ level: "debug", forPeople: false, write: (line) => written.push(line) });
    const app = express()
      .use(
        beginExchange(
          { ids: randomIds, requestLog: log, feed: new Feed(), clock: systemClock, isStopping: () => false },
          { observe: () => {} },
        ),
      )
      .use((_request, response) => void response.end());
    const server = await listen(app, { host: "127.0.0.1", port: 0 }, { log });
    const paths = [
      '/%0a{"level":"error"}',
      "/a%0d%0ab",
      "/\u00ff\u0080",
      '/x"}',
      "/%1b[2J",
      `/${"y".repeat(9000)}`,
    ];
    for (const path of paths) {
      await exchange(
        server.url,
        requestText("GET", path, [
          ["x-request-id", '"}\\n{"'],
          ["User-Agent", "\x1b[31m"],
        ]),
      );
    }
    await exchange(server.url, "no HTTP \x1b[2J\n\r\n\r\n");
    await server.close(0);
    expect(written.length).toBe(paths.length + 1);
    for (const line of written) {
      expect(line).toMatch(/^[^\p{Cc}]+\n$/u);
      expect(JSON.parse(line)).toMatchObject({ level: "info" });
    }
  });
});

const BILLION_LAUGHS = `<?xml version="1.0"?><!DOCTYPE s [<!ENTITY a "${"lol".repeat(50)}">${Array.from({ length: 9 }, (_, i) => `<!ENTITY ${String.fromCharCode(98 + i)} "${`&${String.fromCharCode(97 + i)};`.repeat(10)}">`).join("")}]><svg xmlns="http://www.w3.org/2000/svg"><text>&j;</text></svg>`;

/** A one-bit PNG of this many pixels a side: more than the service decodes, in a few hundred kilobytes. */
function hugePng(side: number): Buffer {
  expect(side * side).toBeGreaterThan(FIXED_LIMITS.referencePixels);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(side, 0);
  header.writeUInt32BE(side, 4);
  header[8] = 1;
  const pixels = deflateSync(Buffer.alloc((Math.ceil(side / 8) + 1) * side), { level: 1 });
  const signature = Buffer.from("89504e470d0a1a0a", "hex");
  return Buffer.concat([
    signature,
    chunk("IHDR", header),
    chunk("IDAT", pixels),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** Puts a chunk behind the header of a PNG. */
function withChunk(png: Buffer, type: string, data: Buffer): Buffer {
  const afterHeader = 8 + 25;
  return Buffer.concat([png.subarray(0, afterHeader), chunk(type, data), png.subarray(afterHeader)]);
}

function chunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type), data]);
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  checksum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, checksum]);
}
