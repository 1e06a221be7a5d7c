import { createHash } from "node:crypto";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { inspect } from "node:util";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { Connections } from "../../../src/http/transport.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { s3Blobs } from "../../../src/storage/blobs/s3.ts";
import { startFakeS3 } from "../../support/fake-s3.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";

const BYTES = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7 + (i >> 8)) % 256));
const KEY = "outputs/b/1";

/** Says of large bytes what they are: a comparison byte by byte takes the test runner seconds. */
const told = (bytes: Buffer | null) => bytes && sha256Hex(bytes);
const SAME = told(BYTES);

async function open(settings: Parameters<typeof fakeBucket>[0] = {}) {
  const bucket = await fakeBucket({ clock: new InstantClock(), ...settings });
  return { ...bucket, blobs: s3Blobs(bucket.settings) };
}

/** The error that a request ends with. */
async function failureOf(work: Promise<unknown>): Promise<StorageUnavailable> {
  const error = await work.then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(StorageUnavailable);
  return error;
}

describe("objects", () => {
  it("[S3-1] an object is stored with its checksum below the prefix, and the key decides its name alone", async () => {
    const { fake, blobs } = await open({ prefix: "team a+b/päck (1)" });
    await blobs.put(KEY, BYTES);
    const [[name, object] = []] = [...fake.objects];
    expect(name).toBe("team a+b/päck (1)/outputs/b/1");
    expect(object?.sha256).toBe(createHash("sha256").update(BYTES).digest("base64"));
    expect(fake.requests[0]?.headers["content-length"]).toBe("300000");
    expect(told(await blobs.read(KEY))).toBe(SAME);
    expect((await blobs.list("outputs/")).map(({ key }) => key)).toEqual([KEY]);
  });

  it("[S3-1] a bucket of Amazon's is a host, and one with dots or of another server is a path", async () => {
    const connecting = vi.spyOn(Connections.prototype, "to").mockRejectedValue(new Error("no network"));
    onTestFinished(() => connecting.mockRestore());
    const addressOf = async (settings: Parameters<typeof open>[0]) => {
      connecting.mockClear();
      const { blobs } = await open({ region: "eu-central-1", prefix: "p", ...settings });
      await failureOf(blobs.read("a"));
      return new Set(connecting.mock.calls.map(([{ origin, pathname }]) => origin + pathname));
    };
    const amazon = { endpoint: undefined };
    expect([
      ...(await addressOf({ ...amazon, bucket: "pictures" })),
      ...(await addressOf({ ...amazon, bucket: "my.pictures" })),
      ...(await addressOf({ bucket: "pictures", endpoint: "http://127.0.0.1:9000/" })),
    ]).toEqual([
      "https://pictures.s3.eu-central-1.amazonaws.com/p/a",
      "https://s3.eu-central-1.amazonaws.com/my.pictures/p/a",
      "http://127.0.0.1:9000/pictures/p/a",
    ]);
  });

  it("[S3-1] the age of an object is told by the clock of the server", async () => {
    const { fake, blobs } = await open();
    fake.objects.set("imgbatch/outputs/b/old", {
      bytes: BYTES,
      etag: '"e"',
      modifiedMs: Date.now() - 7_200_000,
      contentType: "binary/octet-stream",
      sha256: undefined,
    });
    const [listed] = await blobs.list("outputs/b/");
    expect(Math.round((listed?.ageMs ?? 0) / 3_600_000)).toBe(2);
  });

  it("[S3-1] a list has all pages, names with any characters, and no markers of directories", async () => {
    const { fake, blobs } = await open();
    fake.pageSize = 3;
    const names = ["a&b", "a<b>", "a b", "ä'\"", "%41+", ...Array.from({ length: 20 }, (_, i) => `n${i}`)];
    for (const name of names) await blobs.put(`inputs/${name}`, BYTES.subarray(0, 3));
    await blobs.put("inputs/marker/", Buffer.alloc(0));
    expect((await blobs.list("inputs/")).map(({ key }) => key.slice(7)).sort()).toEqual(names.toSorted());
    await blobs.deleteAll("inputs/");
    expect([...fake.objects.keys()]).toEqual(["imgbatch/inputs/marker/"]);
  });

  it("[S3-1] drafts are files of the process, and what is lent or read leaves none", async () => {
    const { fake, settings, blobs } = await open();
    const { scratchDirectory } = settings;
    await mkdir(scratchDirectory);
    await writeFile(`${scratchDirectory}/of-an-earlier-process`, "x");
    await blobs.removeDrafts();
    const draft = blobs.draft();
    await draft.write(BYTES);
    expect(await readdir(scratchDirectory)).toHaveLength(1);
    await draft.keepAs("files/a");
    expect([...fake.objects.keys()]).toEqual(["imgbatch/files/a"]);
    await blobs.lend("files/a", async () => {});
    const reader = await blobs.reader("files/a");
    expect(await readdir(scratchDirectory)).toEqual([]);
    await reader?.close();
  });
});

describe("a server or a network that fails", () => {
  const faults = {
    "503 SlowDown": { refuse: { status: 503, code: "SlowDown" } },
    "500 InternalError": { refuse: { status: 500, code: "InternalError" } },
    "429 TooManyRequests": { refuse: { status: 429, code: "TooManyRequests" } },
    "400 RequestTimeout": { refuse: { status: 400, code: "RequestTimeout" } },
    "a reset before the work": { reset: "before" },
    "a lost answer": { reset: "after" },
    "a hanging server": { hang: true },
  } as const;

  it.each(Object.entries(faults))("[S3-2] every request is repeated after %s", async (_name, fault) => {
    const { fake, blobs } = await open({ silenceMs: "hang" in fault ? 150 : 2_000 });
    const failed = <T>(work: () => Promise<T>): Promise<T> => {
      fake.fail(fault, { times: 2 });
      return work();
    };
    await failed(() => blobs.put(KEY, BYTES));
    expect(told(await failed(() => blobs.read(KEY)))).toBe(SAME);
    expect(await failed(() => blobs.sizeOf(KEY))).toBe(BYTES.length);
    expect(await failed(() => blobs.list("outputs/"))).toHaveLength(1);
    await failed(() => blobs.delete(KEY));
    expect(fake.objects.size).toBe(0);
    expect(await failed(() => blobs.read(KEY))).toBeNull();
  });

  it("[S3-2] a body that is cut continues where it was cut, in whatever way it is read", async () => {
    const { fake, blobs } = await open();
    await blobs.put(KEY, BYTES);
    const cut = () => fake.fail({ cutAt: 70_000 }, { times: 3 });
    cut();
    expect(told(await blobs.read(KEY))).toBe(SAME);
    cut();
    expect(told(await blobs.lend(KEY, async (bytes) => Buffer.from(bytes)))).toBe(SAME);
    cut();
    const part = await (await blobs.open(KEY, { start: 10, end: 290_000 }))?.toArray();
    expect(Buffer.concat(part ?? []).equals(BYTES.subarray(10, 290_001))).toBe(true);
    const ranges = fake.requests.map(({ headers }) => headers.range).filter((range) => range !== undefined);
    expect(ranges).toHaveLength(10);
    // Of each read, every request begins behind what came before it. How much of a cut answer arrives is chance.
    for (const read of [ranges.slice(0, 3), ranges.slice(3, 6), ranges.slice(6)]) {
      const starts = read.map((range) => Number(/^bytes=(\d+)-/.exec(String(range))?.[1]));
      expect(starts).toEqual([...new Set(starts)].sort((a, b) => a - b));
    }
    cut();
    expect(await blobs.list("outputs/")).toHaveLength(1);
  });

  it("[S3-2] an object that was replaced while it was read is no mixture", async () => {
    const { fake, blobs } = await open();
    await blobs.put(KEY, BYTES);
    fake.fail({ cutAt: 100 });
    const stream = await blobs.open(KEY);
    await blobs.put(KEY, Buffer.from(BYTES.toReversed()));
    await expect(stream?.toArray()).rejects.toThrow("PreconditionFailed");
  });

  it("[S3-2] an object that is deleted while it is read is missing", async () => {
    const { fake, blobs } = await open();
    await blobs.put(KEY, BYTES);
    fake.fail({ cutAt: 100 });
    // The request for the rest finds nothing.
    const when = ({ headers }: { headers: { range?: string | undefined } }) => {
      if (headers.range !== undefined) fake.objects.clear();
      return false;
    };
    fake.fail({}, { when });
    expect(await blobs.read(KEY)).toBeNull();
    expect(fake.requests.map(({ status }) => status)).toEqual([200, 200, 404]);
  });

  it("[S3-2] bytes that differ from the checksum of the server are read again", async () => {
    const { fake, blobs } = await open();
    await blobs.put(KEY, BYTES);
    fake.fail({ wrongBytes: true }, { times: 2 });
    expect(told(await blobs.read(KEY))).toBe(SAME);
    fake.fail({ wrongBytes: true }, { times: 2 });
    expect(told(await blobs.lend(KEY, async (bytes) => Buffer.from(bytes)))).toBe(SAME);
    fake.fail({ wrongBytes: true }, { times: 3 });
    expect(await blobs.read(KEY)).toBeNull();
  });

  const entry = (size: string) =>
    `<Contents><Key>a</Key><LastModified>2030-01-02T03:04:05.000Z</LastModified><Size>${size}</Size></Contents>`;
  const page = (inner: string) =>
    `<?xml version="1.0"?>\n<ListBucketResult xmlns="x"><Name>images</Name>${inner}</ListBucketResult>\n`;

  it.each([
    ["a page of something else", "<html>sign in</html>"],
    ["something that is no XML", "sign in"],
    ["nothing", ""],
    ["half a list", page(entry("3")).slice(0, -20)],
    ["an entry without a size", page(entry("many"))],
    ["more without a token", page("<IsTruncated>true</IsTruncated>")],
  ])("[S3-2] %s is no list", async (_name, says) => {
    const { fake, blobs } = await open();
    await blobs.put("a", BYTES);
    fake.fail({ says }, { times: 8 });
    expect(await failureOf(blobs.list(""))).toMatchObject({ reason: "broken" });
    fake.fail({ says });
    expect(await blobs.list("")).toHaveLength(1);
  });

  it("[S3-2] a slow answer is waited for while bytes come, and a reader may be slow", async () => {
    const { fake, blobs } = await open({ silenceMs: 2500 });
    await blobs.put(KEY, BYTES);
    fake.fail({ slowMs: 150 });
    expect(told(await blobs.read(KEY))).toBe(SAME);
    expect(fake.requests).toHaveLength(2);
    const stream = await blobs.open(KEY);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    expect(told(Buffer.concat((await stream?.toArray()) ?? []))).toBe(SAME);
  });

  it("[S3-2] a stream that nobody reads to its end is let go", async () => {
    const { blobs } = await open();
    await blobs.put(KEY, BYTES);
    for (let i = 0; i < 40; i++) (await blobs.open(KEY))?.destroy();
    expect(await blobs.sizeOf(KEY)).toBe(BYTES.length);
  });
});

describe("a bucket that cannot be used", () => {
  it("[S3-3] wrong keys, a missing bucket and expired keys are told at once, without secrets", async () => {
    const { fake, settings, blobs } = await open();
    const secretAccessKey = "another-secret-0123456789-abcdefghijklm";
    const cases = [
      [s3Blobs({ ...settings, secretAccessKey }), "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"],
      [s3Blobs({ ...settings, accessKeyId: "AKIAOTHER" }), "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"],
      [s3Blobs({ ...settings, bucket: "other" }), "NoSuchBucket", "no such bucket"],
    ] as const;
    for (const [store, code, words] of cases) {
      for (const work of [
        () => store.put(KEY, BYTES),
        () => store.read(KEY),
        () => store.sizeOf(KEY),
        () => store.delete(KEY),
        () => store.list("a/"),
      ]) {
        const error = await failureOf(work());
        expect(error).toMatchObject({ reason: "broken" });
        expect(error.message).toContain(code);
        expect(String(error.cause)).toContain(words);
        const shown = inspect(error, { depth: 9 });
        for (const secret of [secretAccessKey, settings.secretAccessKey]) expect(shown).not.toContain(secret);
      }
    }
    expect(fake.requests).toHaveLength(18);
    fake.fail({ refuse: { status: 403, code: "ExpiredToken" } });
    expect(String((await failureOf(blobs.read(KEY))).cause)).toContain("expired");
  });

  it("[S3-3] a bucket that is full is a full disk, and a draft reports it as a blob does", async () => {
    const { fake, blobs } = await open();
    fake.fail({ refuse: { status: 507, code: "XMinioStorageFull" } }, { times: 2 });
    expect(await failureOf(blobs.put(KEY, BYTES))).toMatchObject({ reason: "full" });
    const draft = blobs.draft();
    await draft.write(BYTES);
    expect(await failureOf(draft.keepAs(KEY))).toMatchObject({ reason: "full" });
    await draft.keepAs(KEY);
    expect(told(await blobs.read(KEY))).toBe(SAME);
  });

  it("[S3-3] a server that is gone is given up after a time", async () => {
    const fake = await startFakeS3();
    await fake.close();
    const { blobs } = await open({ endpoint: fake.url });
    expect(await failureOf(blobs.read(KEY))).toMatchObject({
      reason: "broken",
      message: "The service cannot use its object storage now (ECONNREFUSED).",
    });
  });
});

describe("a store that is closed", () => {
  it("[S3-4] ends every request that is under way, and begins none", async () => {
    const { fake, settings } = await open({ silenceMs: 60_000 });
    const closing = new AbortController();
    const blobs = s3Blobs({ ...settings, closed: closing.signal });
    await blobs.put(KEY, BYTES);
    fake.fail({ slowMs: 500 });
    const streaming = (await blobs.open(KEY))?.toArray() ?? expect.fail();
    fake.fail({ hang: true }, { times: 5 });
    const works = () => [
      blobs.read(KEY),
      blobs.sizeOf(KEY),
      blobs.list("outputs/"),
      blobs.delete(KEY),
      blobs.put("outputs/b/2", BYTES),
    ];
    const waiting = [streaming, ...works()].map((work: Promise<unknown>) => failureOf(work));
    await expect.poll(() => fake.requests).toHaveLength(7);
    closing.abort();
    const failures = await Promise.all([...waiting, ...works().map((work) => failureOf(work))]);
    for (const error of failures) expect(error).toMatchObject({ reason: "broken" });
    expect(fake.requests).toHaveLength(7);
  });
});
