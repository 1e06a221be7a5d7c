import { execFileSync } from "node:child_process";
import { readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { chmod, cp, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import type { errorBody } from "../../src/contract/errors.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import type { OutputRecord } from "../../src/domain/records.ts";
import { openAdmin } from "../../src/service/admin.ts";
import { seededRandom } from "../soak/random.ts";
import { FakeJobProvider } from "../support/fake-job-provider.ts";
import { FakeProvider, made, tinyJpeg, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { BIN, imgbatch, startNode } from "../support/processes.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { checkOf } from "../support/used-directory.ts";

const codeOf = async (answer: Response) => ((await answer.json()) as ReturnType<typeof errorBody>).error.code;

/** Damage that a disk, or somebody, can do to a stored image. Sizes stay only where the name says so. */
const DAMAGE: [what: string, hasSameSize: boolean, damage: (path: string, other: string) => Promise<void>][] =
  [
    ["a flipped bit", true, async (path) => flip(path, 20, 1)],
    ["zeros in its middle", true, async (path) => zero(path)],
    ["another image of the same size", true, async (path, other) => swap(path, other)],
    ["a cut end", false, async (path) => truncateSync(path, statSync(path).size - 1)],
    ["nothing in it", false, async (path) => truncateSync(path, 0)],
    ["more behind its end", false, async (path) => writeFileSync(path, "x", { flag: "a" })],
    // Sparse: it takes no room on the disk.
    ["more behind it than fits into memory", false, async (path) => truncateSync(path, 3 * 1024 ** 3)],
    ["no file", false, (path) => rm(path)],
    [
      "a pipe in its place, out of which nothing comes",
      false,
      async (path) => {
        await rm(path);
        execFileSync("mkfifo", [path]);
      },
    ],
    [
      "a directory in its place",
      false,
      async (path) => {
        await rm(path);
        await mkdir(path);
      },
    ],
    [
      "its directory replaced by a file",
      false,
      async (path) => {
        await rm(join(path, ".."), { recursive: true });
        await writeFile(join(path, ".."), "not a directory");
      },
    ],
  ];

const kind = (name: string) => DAMAGE.find(([what]) => what === name) ?? expect.fail(`no damage is ${name}`);

/** Every stage checks an image by the same code, which the first test tries with all damage. */
const KINDS = [kind("another image of the same size"), kind("no file")];
const ALONE = [kind("a flipped bit")];

function flip(path: string, at: number, mask: number): void {
  const bytes = readFileSync(path);
  bytes[at] = (bytes[at] ?? 0) ^ mask;
  writeFileSync(path, bytes);
}

function zero(path: string): void {
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.fill(0, bytes.length >> 1, (bytes.length >> 1) + 9));
}

async function swap(a: string, b: string): Promise<void> {
  await rename(a, `${a}.x`);
  await rename(b, a);
  await rename(`${a}.x`, b);
}

/** A completed batch of three images of one size, and where they are stored. */
async function finished(): Promise<{
  service: TestService;
  id: string;
  outputs: OutputRecord[];
  path(i: number): string;
}> {
  const provider = new FakeProvider({ concurrency: 1 });
  provider.answer = async ({ prompt }) => made(await tinyPng(Number(prompt.split(" ")[1])));
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(3) });
  await service.until(id);
  const beside = await openBeside(service.data);
  const outputs = [...(await beside.stores.read.outputs.ofBatch(id))];
  // The process that closes last leaves everything in the one file of the database.
  await beside.close();
  return { service, id, outputs, path: (i) => join(service.data, "blobs", outputs[i]?.blobKey ?? "") };
}

describe("a stored image with", () => {
  it.each(DAMAGE)(
    "[DAMAGE-1] %s is never sent: not whole, not in part, not in a ZIP; and the check names it",
    async (_, hasSameSize, damage) => {
      const { service, id, outputs, path } = await finished();
      await damage(path(1), path(2));
      for (const headers of [{}, { range: "bytes=0-3" }, { range: "bytes=-4" }]) {
        const answer = await service.ask(`/${id}/items/i2/content`, { headers });
        expect([answer.status, await codeOf(answer)]).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
        expect(answer.headers.get("etag")).toBeNull();
      }
      const zip = await service.ask(`/${id}/download`);
      if (hasSameSize) await expect(zip.arrayBuffer()).rejects.toThrow();
      else expect([zip.status, await codeOf(zip)]).toEqual([500, "BATCH_IMAGE_RESULT_MISSING"]);
      expect((await service.batch(id)).downloaded_at).toBeNull();
      const { stores, blobs } = await openBeside(service.data);
      const { problems } = await checkInvariants(stores, blobs);
      expect(problems.join()).toContain(`the image ${outputs[1]?.blobKey} is `);
      // The rest of the service goes on.
      expect(
        await service.ask("/models").then((answer) => answer.arrayBuffer().then(() => answer.status)),
      ).toBe(200);
    },
  );

  it("[DAMAGE-1] damage that comes while a ZIP is sent breaks the connection before its end", async () => {
    const { default: sharp } = await import("sharp");
    const noise = { type: "gaussian" as const, mean: 128, sigma: 60 };
    const large = await sharp({
      create: { width: 1200, height: 1200, channels: 3, noise, background: "#000" },
    })
      .png({ compressionLevel: 0 })
      .toBuffer();
    const provider = new FakeProvider();
    provider.answer = async () => made(large);
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const { stores } = await openBeside(service.data);
    const last = (await stores.read.outputs.ofBatch(id)).at(-1)?.blobKey ?? "";
    const answer = await service.ask(`/${id}/download`);
    expect(answer.status).toBe(200);
    const reader = answer.body?.getReader();
    let received = (await reader?.read())?.value?.length ?? 0;
    flip(join(service.data, "blobs", last), 1000, 4);
    const readOn = async () => {
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true };
        if (done) return;
        received += value?.length ?? 0;
      }
    };
    await expect(readOn()).rejects.toThrow();
    expect(received).toBeLessThan(Number(answer.headers.get("content-length")));
    expect((await service.batch(id)).downloaded_at).toBeNull();
  });

  it.each(KINDS)("[RESULT-1] %s is found before the batch is paid", async (_, __, damage) => {
    const last = gate();
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }) => {
      if (prompt === "picture 4") await last.promise;
      return made(await tinyPng(Number(prompt.split(" ")[1])));
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(3);
    const { stores } = await openBeside(service.data);
    const [, second, third] = (await stores.read.outputs.ofBatch(id)).map((o) =>
      join(service.data, "blobs", o.blobKey),
    );
    await damage(second ?? "", third ?? "");
    last.open();
    const ended = await service.until(id);
    const isSwap = (ended.fail_count ?? 0) === 2;
    expect(ended).toMatchObject({ status: "completed", fail_count: isSwap ? 2 : 1 });
    expect(ended.actual_cost).toBe(isSwap ? 0.067 : 0.1005);
    await service.expectBooks();
    const zip = await service.ask(`/${id}/download`);
    expect((await zip.arrayBuffer()).byteLength).toBe(Number(zip.headers.get("content-length")));
  });
});

describe("an image that was damaged before its batch ended early", () => {
  /** A batch of two images that are stored and two that are not, one of the stored ones damaged. */
  async function half(damage: (path: string, other: string) => Promise<void>) {
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "picture 3") {
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      }
      return made(await tinyPng(Number(prompt.split(" ")[1])));
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(2);
    const { stores } = await openBeside(service.data);
    const [first, second] = (await stores.read.outputs.ofBatch(id)).map((o) =>
      join(service.data, "blobs", o.blobKey),
    );
    await damage(first ?? "", second ?? "");
    return { service, id };
  }

  /** Only the intact image is paid, is there, and is told as a success. */
  async function expectOnePaid(service: TestService, id: string, status: string) {
    expect(await service.until(id)).toMatchObject({
      status,
      success_count: 1,
      fail_count: 3,
      actual_cost: 0.0335,
    });
    const list = (await (await service.ask(`/${id}/items?status=failed`)).json()) as {
      data: { custom_id: string; error: object }[];
    };
    expect(list.data[0]).toMatchObject({
      custom_id: "i1",
      error: { code: "RESULT_MISSING", source: "service" },
    });
    await service.expectBooks();
    const zip = await service.ask(`/${id}/download`);
    expect((await zip.arrayBuffer()).byteLength).toBe(Number(zip.headers.get("content-length")));
  }

  it.each(ALONE)("with %s is not paid when it is cancelled", async (_, __, damage) => {
    const { service, id } = await half(damage);
    expect((await service.ask(`/${id}/cancel`, { method: "POST" })).status).toBe(200);
    await expectOnePaid(service, id, "cancelled");
  });

  it("is not paid when it fails", async () => {
    const { service, id } = await half((path) => rm(path));
    await service.close(0);
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: "failed", said: "the job failed" });
    upstream.resultOf = async () => null;
    await expectOnePaid(await startTestService({ data: service.data, providers: [upstream] }), id, "failed");
  });
});

describe("a stored reference image", () => {
  it.each(ALONE)(
    "with %s never reaches a provider: its items fail, the others are made",
    async (_, __, damage) => {
      const first = gate();
      const provider = new FakeProvider({ concurrency: 1 });
      provider.answer = async ({ prompt }) => {
        if (prompt === "first") await first.promise;
        return made(await tinyPng());
      };
      const service = await startTestService({ providers: [provider] });
      const reference = { mime_type: "image/png", data: (await tinyPng(7)).toString("base64") };
      const { id } = await service.submit({
        model: MODEL,
        items: [
          { prompt: "first" },
          { prompt: "second", reference_images: [reference] },
          { prompt: "third" },
        ],
      });
      await expect.poll(() => provider.running).toBe(1);
      const { blobs } = await openBeside(service.data);
      const key = (await blobs.list(`inputs/${id}/`))[0]?.key ?? "";
      await damage(join(service.data, "blobs", key), "");
      first.open();
      expect(await service.until(id)).toMatchObject({ success_count: 2, fail_count: 1, actual_cost: 0.067 });
      expect(provider.requests.map(({ prompt }) => prompt)).toEqual(["first", "third"]);
      const failed = (await (await service.ask(`/${id}/items?status=failed`)).json()) as {
        data: { error: object }[];
      };
      expect(failed.data.map(({ error }) => error)).toMatchObject([
        { code: "RESULT_MISSING", source: "service" },
      ]);
    },
  );
});

describe("bytes of a provider", () => {
  it("[ITEM-3] that are no whole image fail their item alone, and what is one is named by its bytes", async () => {
    const png = await tinyPng();
    const answers: [prompt: string, bytes: Buffer | Promise<Buffer> | null][] = [
      ["good", png],
      ["half", png.subarray(0, png.length >> 1)],
      ["an empty file", Buffer.alloc(0)],
      ["an error page", Buffer.from("<html>502 Bad Gateway</html>")],
      ["an SVG", Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')],
      ["JSON", Buffer.from('{"data":"iVBORw0KGgo"}')],
      ["Base64 instead of bytes", Buffer.from(png.toString("base64"))],
      ["a huge header", hugePng(png)],
      ["another type", tinyJpeg()],
      ["nothing at all", null],
    ];
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      const bytes = await answers.find(([name]) => name === prompt)?.[1];
      return bytes ? made(bytes) : made();
    };
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: answers.map(([prompt]) => ({ prompt })) });
    expect(await service.until(id)).toMatchObject({
      status: "completed",
      success_count: 2,
      fail_count: 8,
      actual_cost: 0.067,
    });
    for (const { prompt_preview, mime_type, error } of await service.items(id)) {
      const types: Record<string, string> = { good: "image/png", "another type": "image/jpeg" };
      expect([prompt_preview, mime_type]).toEqual([prompt_preview, types[prompt_preview] ?? null]);
      const code = prompt_preview === "nothing at all" ? "EMPTY_IMAGE_OUTPUT" : "INVALID_IMAGE_OUTPUT";
      if (mime_type === null) expect(error).toMatchObject({ code, source: "provider" });
    }
  });
});

/** A PNG whose header says 40000x40000. The sum over the header is wrong then, which nobody gets to see. */
function hugePng(png: Buffer): Buffer {
  const bytes = Buffer.from(png);
  bytes.writeUInt32BE(40_000, 16);
  bytes.writeUInt32BE(40_000, 20);
  return bytes;
}

describe("the database", () => {
  it("with flipped bits is reported by the check or changes nothing that is served", async () => {
    const { service, id, outputs } = await finished();
    const originals = await Promise.all(outputs.map((_, i) => tinyPng(i + 1)));
    await service.close(0);
    const random = seededRandom(42);
    const outcomes = { refused: 0, told: 0, fine: 0 };
    for (let n = 0; n < 8; n++) {
      const copy = join(await tempDir(), "copy");
      await cp(service.data, copy, { recursive: true });
      const file = join(copy, "imgbatch.db");
      for (let flips = 0; flips < 1 + n * 8; flips++) {
        flip(file, Math.floor(random() * statSync(file).size), 1 << Math.floor(random() * 8));
      }
      const outcome = await look(copy, id, originals);
      outcomes[outcome]++;
    }
    expect(outcomes.refused + outcomes.told).toBeGreaterThan(3);
  });

  it.each<[string, (file: string) => void]>([
    ["that is something else", (file) => writeFileSync(file, "this is no database, ".repeat(500))],
    ["that has lost its head", (file) => flipHead(file)],
    ["that is cut in the middle", (file) => truncateSync(file, statSync(file).size >> 1)],
    ["that is empty while there are images", (file) => truncateSync(file, 0)],
  ])("%s stops the start, and the check tells it", async (_, damage) => {
    const { service } = await finished();
    await service.close(0);
    damage(join(service.data, "imgbatch.db"));
    const isDamage = (error: { code?: string }) =>
      /^(STORAGE_FAILED|SQLITE_CORRUPT|SQLITE_NOTADB)/.test(error.code ?? "");
    const start = startTestService({ data: service.data });
    const file = expect.stringContaining(join(service.data, "imgbatch.db"));
    await expect(start).rejects.toMatchObject({ code: "STORAGE_FAILED", message: file });
    const isTold = await checkOf(service.data).then(
      ({ problems }) => /damaged|malformed/.test(problems.join()),
      isDamage,
    );
    expect(isTold).toBe(true);
  });

  it("that is none is named by every command, without a stack", async () => {
    const data = await tempDir();
    writeFileSync(join(data, "imgbatch.db"), "this is no database, ".repeat(500));
    for (const args of [
      ["serve", "--port", "0"],
      ["admin", "check"],
    ]) {
      const { code, stderr } = await imgbatch([...args, "--data", data]);
      expect(code).toBe(9);
      expect(stderr).toContain(`${join(data, "imgbatch.db")} is damaged: file is not a database.`);
      expect(stderr).toContain("Put a backup of the data directory in place.");
      expect(stderr).not.toContain("    at ");
    }
  });

  it("whose pages are damaged under a running service ends it: one line names the file, exit 9", async () => {
    const data = await tempDir();
    const serve = startNode([BIN, "serve", "--port", "0", "--data", data]);
    const { url } = JSON.parse(await serve.line());
    const { api_key: key } = JSON.parse(readFileSync(join(data, "credentials.json"), "utf8"));
    const batches = `${url}/v1/images/batches`;
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const body = JSON.stringify({ model: MODEL, items: items(1) });
    const create = () => fetch(batches, { method: "POST", headers, body });
    const created = await create();
    expect(created.status).toBe(200);
    const { id } = (await created.json()) as BatchObject;
    // What is written during the damage would be whole, in the WAL.
    const status = async () => (await (await fetch(`${batches}/${id}`, { headers })).json()).status;
    await expect.poll(status).toBe("completed");
    await expect.poll(async () => (await fetch(`${url}/readyz`)).status).toBe(200);
    const file = join(data, "imgbatch.db");
    damagePages(file);
    const answer = await create().catch(() => null);
    await answer?.text();
    // Either a read or the write of the request meets the damage first.
    if (answer) expect([500, 502]).toContain(answer.status);
    const { code, stderr } = await serve.exited;
    expect(code).toBe(9);
    expect(stderr).toContain("the database cannot be used any more; stopping");
    expect(stderr).toContain(`error: ${file} is damaged: database disk image is malformed.`);
  });

  it("[OPS-7] whose pages are damaged makes the service not ready", async () => {
    const service = await startTestService();
    damagePages(join(service.data, "imgbatch.db"));
    const ready = await fetch(`${service.url}/readyz`);
    expect([ready.status, await ready.json()]).toEqual([
      503,
      { status: "not_ready", problems: ["the database cannot be written"] },
    ]);
    await expect.poll(() => service.failed.reason).toMatchObject({ code: "STORAGE_FAILED" });
  });

  /** Every page but the first becomes noise, and nobody has an older one in the WAL. */
  function damagePages(file: string): void {
    const beside = new Sqlite(file);
    beside.pragma("wal_checkpoint(TRUNCATE)");
    beside.close();
    const bytes = readFileSync(file);
    const random = seededRandom(7);
    for (let at = 4096; at < bytes.length; at++) bytes[at] = Math.floor(random() * 256);
    // In place: a new file would not be the one that the service has open.
    writeFileSync(file, bytes, { flag: "r+" });
  }

  function flipHead(file: string): void {
    for (let at = 0; at < 100; at++) flip(file, at, 0x5a);
  }

  it("that is gone while there are images is not replaced by a new one", async () => {
    const { service } = await finished();
    await service.close(0);
    await rm(join(service.data, "imgbatch.db"));
    await expect(startTestService({ data: service.data })).rejects.toMatchObject({ code: "STORAGE_FAILED" });
  });
});

/** Opens, checks and serves a damaged data directory: no image may come out of it that is not one of the originals. */
async function look(
  data: string,
  id: string,
  originals: readonly Buffer[],
): Promise<"refused" | "told" | "fine"> {
  const isTold = await openAdmin({ directory: data }).then(
    async (admin) => {
      const { problems } = await admin.check().finally(() => admin.close());
      return problems.length > 0;
    },
    () => true,
  );
  try {
    const service = await startTestService({
      data,
      config: { retention: { outputHours: 0, inputHours: 0 } },
    });
    for (const [i, original] of originals.entries()) {
      const answer = await service.ask(`/${id}/items/i${i + 1}/content`).catch(() => null);
      const bytes = Buffer.from((await answer?.arrayBuffer().catch(() => null)) ?? new ArrayBuffer(0));
      if (answer?.status === 200 && !originals.some((each) => each.equals(bytes))) {
        throw new Error(`other bytes were served for image ${i + 1}, ${original.length} bytes`);
      }
    }
    await service.close(0);
  } catch (error) {
    if (String(error).includes("other bytes")) throw error;
    return "refused";
  }
  return isTold ? "told" : "fine";
}

describe("the files beside the database", () => {
  it.each<[string, (file: string) => unknown]>([
    ["broken JSON", (file) => writeFileSync(file, '{"base_url":')],
    ["JSON of something else", (file) => writeFileSync(file, '["imgb_"]')],
    ["no text at all", (file) => truncateSync(file, 0)],
    [
      "a directory",
      async (file) => {
        await rm(file);
        await mkdir(file);
      },
    ],
  ])(
    "credentials.json that is %s stops the start, and is named; nothing is overwritten",
    async (_, damage) => {
      const first = await startTestService({ workers: false });
      await first.close(0);
      const file = join(first.data, "credentials.json");
      await damage(file);
      await expect(startTestService({ data: first.data, workers: false })).rejects.toMatchObject({
        code: "INVALID_CONFIG",
        message: expect.stringContaining(file),
      });
      await rm(file, { recursive: true });
      const second = await startTestService({ data: first.data, workers: false });
      expect(second.credentials.api_key).not.toBe(first.credentials.api_key);
    },
  );

  it("server.json that is broken says nothing, and hinders nothing", async () => {
    const first = await startTestService({ workers: false });
    await first.close(0);
    writeFileSync(join(first.data, "server.json"), '{"url":"http://127');
    await chmod(join(first.data, "server.json"), 0o600);
    const second = await startTestService({ data: first.data, workers: false });
    expect(JSON.parse(readFileSync(join(first.data, "server.json"), "utf8"))).toMatchObject({
      url: second.url,
    });
  });
});
