import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, symlinkSync, writeFileSync, writeSync } from "node:fs";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it, onTestFinished, type TestContext } from "vitest";
import type { errorBody } from "../../src/contract/errors.ts";
import { createCli } from "../support/cli.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { FAKE_KEY, png } from "../support/fake-service.ts";
import { BIN, cleanEnvironment, imgbatch } from "../support/processes.ts";
import { content, errorOf, generate } from "../support/realtime.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { send, start, stateOf, upload, urlOf } from "../support/uploads.ts";

/** A file system of its own with few bytes; skips the test, aloud, where none can be mounted. */
async function smallDisk({ skip }: TestContext, size = "6m"): Promise<string> {
  const disk = join(await tempDir(), "disk");
  await mkdir(disk);
  const isMounted = spawnSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", disk]).status === 0;
  if (!isMounted) {
    process.stderr.write("SKIPPED: this needs to mount a small file system\n");
    skip("no file system can be mounted here");
  }
  onTestFinished(() => {
    spawnSync("umount", ["--lazy", disk]);
  });
  return disk;
}

/** Takes every byte that is left; answers what gives them back. */
function fill(disk: string): () => Promise<void> {
  const path = join(disk, "ballast");
  const file = openSync(path, "a");
  for (let size = 1 << 20; size >= 1; size = size >> 1) {
    try {
      for (;;) writeSync(file, Buffer.alloc(size));
    } catch {
      // No block of this size is left.
    }
  }
  closeSync(file);
  return () => rm(path);
}

function noise(side = 300): Promise<Buffer> {
  const create = { width: side, height: side, channels: 3 as const, background: "#000" };
  const pixels = { ...create, noise: { type: "gaussian" as const, mean: 128, sigma: 50 } };
  return sharp({ create: pixels }).png({ compressionLevel: 0 }).toBuffer();
}

const long = (count: number) =>
  items(count).map((item) => ({ ...item, prompt: "word ".repeat(1000) + item.prompt }));

describe("a full disk", () => {
  it("[DISK-1] refuses a batch whose reference images do not fit: retryable, nothing kept, nothing held", async (context) => {
    const disk = await smallDisk(context);
    const service = await startTestService({ data: join(disk, "data") });
    const { stores, blobs } = await openBeside(service.data);
    const before = await stores.read.accounts.list();
    const [small, large] = [await tinyPng(), await noise()];
    const reference = (bytes: Buffer) => ({ mime_type: "image/png", data: bytes.toString("base64") });
    const body = {
      model: MODEL,
      items: [{ custom_id: "a", prompt: "p", reference_images: [reference(small), reference(large)] }],
    };
    const free = fill(disk);
    const answer = await service.create(body, { "idempotency-key": "k" });
    const { error } = (await answer.json()) as ReturnType<typeof errorBody>;
    expect([answer.status, error.code]).toEqual([502, "BATCH_IMAGE_QUEUE_FAILED"]);
    expect(error.message).toBe("The service's disk is full.");
    expect(await blobs.list("inputs/")).toEqual([]);
    expect(await stores.read.batches.all()).toEqual([]);
    expect(await stores.read.accounts.list()).toEqual(before);
    const ready = await fetch(`${service.url}/readyz`);
    expect(ready.status).toBe(503);
    expect(await ready.text()).toContain("disk space");

    await free();
    const { id } = await service.submit(body, { "idempotency-key": "k" });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1 });
    await service.expectBooks();
  });

  it("[DISK-1] takes the images of large bodies only while there is room left for everything else", async (context) => {
    const disk = await smallDisk(context, "44m");
    const service = await startTestService({ data: join(disk, "data") });
    const data = (await noise(1500)).toString("base64");
    const body = {
      model: MODEL,
      items: [{ prompt: "p", reference_images: [{ mime_type: "image/png", data }] }],
    };
    const { id } = await service.submit(body);
    await service.until(id);
    const ballast = openSync(join(disk, "ballast"), "a");
    writeSync(ballast, Buffer.alloc(8 << 20));
    closeSync(ballast);
    const answer = await service.create(body);
    const { error } = (await answer.json()) as ReturnType<typeof errorBody>;
    expect([answer.status, error.message]).toEqual([502, "The service's disk is full."]);
    const edit = await generate(service, content("p", {}, [{ inlineData: { mimeType: "image/png", data } }]));
    expect(await errorOf(edit)).toMatchObject({ code: 502, message: "The service's disk is full." });
    expect(await readdir(join(service.data, "blobs", "drafts"))).toEqual([]);
    await rm(join(disk, "ballast"));
    await service.until((await service.submit(body)).id);
  });

  it("ends an upload, leaves nothing of it, and takes it when there is room again", async (context) => {
    const disk = await smallDisk(context, "44m");
    const service = await startTestService({ data: join(disk, "data") });
    const bytes = Buffer.alloc(20 << 20, "a");
    const url = await urlOf(await start(service));
    const answer = await send(url, "upload, finalize", 0, bytes);
    expect(stateOf(answer)).toEqual([502, "cancelled", expect.any(String)]);
    expect(await errorOf(answer)).toMatchObject({
      status: "UNAVAILABLE",
      message: "The service's disk is full.",
    });
    expect(await readdir(join(service.data, "blobs", "drafts"))).toEqual([]);
    expect((await send(url, "query")).status).toBe(404);
    spawnSync("mount", ["-o", "remount,size=90m", disk]);
    expect((await upload(service, bytes)).sizeBytes).toBe(String(bytes.length));
  });

  it("[DISK-1] refuses a batch that the database has no room for, and holds nothing", async (context) => {
    const disk = await smallDisk(context);
    const service = await startTestService({ data: join(disk, "data") });
    const { stores } = await openBeside(service.data);
    const free = fill(disk);
    const answer = await service.create({ model: MODEL, items: long(200) });
    const { error } = (await answer.json()) as ReturnType<typeof errorBody>;
    expect([answer.status, error.code]).toEqual([502, "BATCH_IMAGE_QUEUE_FAILED"]);
    expect(await stores.read.batches.all()).toEqual([]);
    expect((await stores.read.accounts.list()).map((account) => account.heldMicroUsd)).toEqual([0]);
    await free();
    const { id } = await service.submit({ model: MODEL, items: long(2) });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 2 });
    await service.expectBooks();
  });

  it("[WORK-4] [DISK-2] keeps made images in hand, and goes on by itself when there is space again", async (context) => {
    const disk = await smallDisk(context);
    const provider = new FakeProvider({ concurrency: 2 });
    let free = async () => {};
    provider.answer = async () => {
      if (provider.requests.length === 3) free = fill(disk);
      return made(await noise());
    };
    const logLines: string[] = [];
    const service = await startTestService({ data: join(disk, "data"), providers: [provider], logLines });
    const { id } = await service.submit({ model: MODEL, items: items(5) });
    await expect.poll(() => logLines.join("")).toContain("disk is full");
    expect((await service.batch(id)).status).toBe("running");
    await free();
    expect(await service.until(id)).toMatchObject({
      status: "completed",
      success_count: 5,
      actual_cost: 0.1675,
    });
    expect(provider.requests).toHaveLength(5);
    await service.expectBooks();
    expect(await readdir(join(service.data, "blobs", "outputs", id))).toHaveLength(5);
  });

  it("is said at the start, with the directory, in one line", async (context) => {
    const disk = await smallDisk(context);
    fill(disk);
    const data = join(disk, "data");
    const { code, stderr } = await imgbatch(["serve", "--port", "0", "--data", data]);
    expect(code).toBe(9);
    expect(stderr).toContain(`The data directory ${data} cannot be used`);
    expect(stderr).not.toMatch(/^ +at /m);
  });
});

/** Runs any program to its end. `onOutput` is told all of standard output so far, each time that there is more. */
async function runProgram(
  program: string,
  args: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv; onOutput?: (stdout: string) => void },
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { cwd, env, onOutput } = options;
  const child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
    onOutput?.(stdout);
  });
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, "close");
  return { code, stdout, stderr };
}

const canMount = spawnSync("unshare", ["-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).status === 0;
if (!canMount)
  process.stderr.write("skipped: no file system of our own can be mounted here, so no disk is full\n");

/** Runs the command on a small disk of its own, looks, makes the disk larger, and runs it again. */
const SCRIPT = `
mount -t tmpfs -o size=$1 tmpfs disk
"$2" "$3" submit p.jsonl -o disk/out -q >/dev/null; echo "first $?"
find disk/out -type f | sort
mount -o remount,size=4m disk
"$2" "$3" submit p.jsonl -o disk/out -q >/dev/null; echo "second $?"
find disk/out -type f | sort
`;

const isSoak = Boolean(process.env.IMGBATCH_SOAK);
const WHOLE = [
  "checks.jsonl",
  "images/a.png",
  "images/b.png",
  "images/c.png",
  "imgbatch.json",
  "index.html",
  "input.jsonl",
  "results.jsonl",
];

/** The files that exist after the disk was full, by the moment at which it was. */
const moments = [
  { when: "before anything is sent", size: "4k", left: ["imgbatch.json"], batches: 0 },
  {
    when: "when the answer is to be noted",
    size: "8k",
    left: ["imgbatch.json", "input.jsonl"],
    batches: 1,
  },
  {
    when: "in the middle of the ZIP",
    size: "250k",
    left: ["imgbatch.json", "input.jsonl"],
    batches: 1,
  },
  {
    when: "in the middle of unpacking it",
    size: "480k",
    left: ["images/a.png", "imgbatch.json", "input.jsonl"],
    batches: 1,
  },
];

for (const { when, size, left, batches } of moments.filter((_, at) => isSoak || at % 2 === 1)) {
  it.skipIf(!canMount)(
    `[RUN-24] a disk that is full ${when} is exit 9, leaves nothing half-written, and costs nothing`,
    async () => {
      const cli = await createCli();
      const lines = ["a", "b", "c"].map((custom_id) => JSON.stringify({ custom_id, prompt: custom_id }));
      writeFileSync(join(cli.cwd, "p.jsonl"), lines.join("\n"));
      mkdirSync(join(cli.cwd, "disk"));
      const { push } = cli.fake.batches;
      let before: number | null = null;
      cli.fake.batches.push = (...made) => {
        for (const item of made.flatMap((batch) => batch.items))
          item.images = [Buffer.concat([png(item.custom_id), randomBytes(100_000)])];
        return push.apply(cli.fake.batches, made);
      };
      const args = ["-rm", "sh", "-c", SCRIPT, "sh", size, process.execPath, BIN];
      const env = cleanEnvironment({ IMGBATCH_BASE_URL: cli.fake.url, IMGBATCH_API_KEY: FAKE_KEY });
      const { stdout, stderr } = await runProgram("unshare", args, {
        cwd: cli.cwd,
        env,
        onOutput: (text) => {
          if (text.includes("first")) before ??= cli.fake.batches.length;
        },
      });
      const [, first, second] = stdout.split(/(?:first|second) /).map((part) => part.trim().split(/\s+/));
      const names = (found: string[] | undefined) =>
        found
          ?.slice(1)
          .map((name) => name.replace("disk/out/", ""))
          .sort();
      expect({ code: first?.[0], left: names(first), stderr }).toMatchObject({ code: "9", left });
      expect(stderr).toContain("the disk is full");
      expect(before).toBe(batches);
      expect({ code: second?.[0], left: names(second) }).toEqual({ code: "0", left: WHOLE });
      expect(cli.fake.batches).toHaveLength(1);
    },
  );
}

/** Runs the commands on a disk of its own: writable first, then read-only, then with an image gone. */
const READ_ONLY = `
mount -t tmpfs -o size=4m tmpfs disk
run() { name=$1; shift; "$node" "$bin" "$@" -q >/dev/null 2>>log; echo "$name $?"; }
run first submit p.jsonl -o disk/out
mount -o remount,ro disk
run submit submit p.jsonl -o disk/out
run download download disk/out
run retry retry disk/out
run wait wait disk/out
run other submit p.jsonl -o disk/other
mount -o remount,rw disk; rm disk/out/images/a.png; mount -o remount,ro disk
run damaged submit p.jsonl -o disk/out
`;

it.skipIf(!canMount)(
  "a whole run on a disk that is read-only is exit 0, and what must be written there is exit 9",
  async () => {
    const cli = await createCli();
    const lines = ["a", "b"].map((custom_id) => JSON.stringify({ custom_id, prompt: custom_id }));
    writeFileSync(join(cli.cwd, "p.jsonl"), lines.join("\n"));
    mkdirSync(join(cli.cwd, "disk"));
    const env = cleanEnvironment({
      IMGBATCH_BASE_URL: cli.fake.url,
      IMGBATCH_API_KEY: FAKE_KEY,
      node: process.execPath,
      bin: BIN,
    });
    const { stdout } = await runProgram("unshare", ["-rm", "sh", "-c", READ_ONLY], { cwd: cli.cwd, env });
    expect(stdout.trim().split("\n")).toEqual([
      "first 0",
      "submit 0",
      "download 0",
      "retry 0",
      "wait 0",
      "other 9",
      "damaged 9",
    ]);
    expect(cli.fake.batches).toHaveLength(1);
  },
);

/** Backs a data directory up to a small disk of its own, looks, makes the disk larger, and does it again. */
const BACKUP = `
mount -t tmpfs -o size=300k tmpfs disk
"$1" "$2" admin backup disk/copy --data data -q; echo "first $? $(ls disk)"
mount -o remount,size=64m disk
"$1" "$2" admin backup disk/copy --data data -q; echo "second $? $(ls disk)"
`;

it.skipIf(!canMount)(
  "[BACKUP-4] a backup onto a full disk is exit 9, and leaves nothing of itself",
  async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    await service.until((await service.submit({ model: MODEL, items: items(2) })).id);
    await service.close(0);
    const cwd = await tempDir();
    symlinkSync(service.data, join(cwd, "data"));
    mkdirSync(join(cwd, "disk"));
    const args = ["-rm", "sh", "-c", BACKUP, "sh", process.execPath, BIN];
    const { stdout, stderr } = await runProgram("unshare", args, { cwd, env: cleanEnvironment() });
    expect(stderr).toContain("could not be written: its disk is full");
    expect(stdout.split("\n").filter((line) => /^(first|second)/.test(line))).toEqual([
      "first 9 ",
      "second 0 copy",
    ]);
  },
);
