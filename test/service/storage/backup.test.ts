import { existsSync } from "node:fs";
import { cp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { DATA_FILES } from "../../../src/contract/data-directory.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import { backupStorage } from "../../../src/service/storage/backup.ts";
import { openStorage } from "../../../src/service/storage/open-storage.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { FakeJobProvider } from "../../support/fake-job-provider.ts";
import { FakeProvider, FakeUpstream, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { BIN, startNode } from "../../support/processes.ts";
import { items, MODEL, startTestService, type TestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { checkOf, usedDirectory } from "../../support/used-directory.ts";

const LOCAL = { database: { kind: "sqlite" }, blobs: { kind: "files" } } as const;

/** Which items of a batch say that they may be paid twice. */
const marksOf = async (service: TestService, id: string) =>
  (await service.items(id)).map(({ notes }) => notes.some((note) => note.includes("paid twice")));

// A shared database and its bucket have backups of their own.
describe.skipIf(process.env.IMGBATCH_TEST_STORES !== undefined)("imgbatch admin backup", () => {
  it("[BACKUP-1] under load: each row of a backup finds its file, and a repeat copies only what is new", async () => {
    const service = await startTestService({ providers: [new FakeProvider({ concurrency: 4 })] });
    const target = join(await tempDir(), "backup");
    const reference = { mime_type: "image/png", data: (await tinyPng(3)).toString("base64") };
    let isOver = false;
    const submitted: string[] = [];
    const load = async () => {
      while (!isOver) {
        const some = items(3).map((item) => ({ ...item, reference_images: [reference] }));
        const { id } = await service.submit({ model: MODEL, items: some });
        submitted.push(id);
        await service.until(id);
        // Every second batch loses its files while they are copied.
        if (submitted.length % 2 === 0) await service.ask(`/${id}/outputs`, { method: "DELETE" });
      }
    };
    const loads = [load(), load()];
    const reports = [];
    for (let i = 0; i < 3; i++) {
      const before = submitted.length;
      await expect.poll(() => submitted.length).toBeGreaterThan(before + 3);
      reports.push(await backupStorage({ directory: service.data, target }));
      expect(await checkOf(target)).toMatchObject({ problems: [] });
    }
    isOver = true;
    await Promise.all(loads);
    expect(reports.map(({ missing }) => missing)).toEqual([[], [], []]);
    const [first, second] = reports;
    expect(second?.copied).toBeLessThan(second?.files ?? 0);
    expect(first?.copied).toBe(first?.files);
    const last = await backupStorage({ directory: service.data, target });
    const report = await checkOf(target);
    expect(report).toEqual(await checkOf(service.data));
    expect(await backupStorage({ directory: service.data, target })).toMatchObject({
      files: last.files,
      copied: 0,
    });
    // What was deleted is not kept for ever.
    const left = await fileBlobs(join(target, DATA_FILES.blobs)).list("");
    expect(left).toHaveLength(last.files);
  });

  it("[BACKUP-2] restored elsewhere, ended batches stay paid, and the others are made and marked", async () => {
    const opened = gate();
    const upstream = new FakeUpstream("paid");
    const service = await startTestService({ providers: [upstream] });
    const admin = await openAdmin({ directory: service.data });
    onTestFinished(() => admin.close());
    await admin.topUp("default", 10_000_000, { isReal: true });
    const done = await service.submit({ model: MODEL, items: items(2) }, { "idempotency-key": "done" });
    await service.until(done.id);
    upstream.answer = async () => {
      await opened.promise;
      return made(await tinyPng());
    };
    const open = await service.submit({ model: MODEL, items: items(3) }, { "idempotency-key": "open" });
    await service.until(open.id, "running");
    const target = join(await tempDir(), "backup");
    await backupStorage({ directory: service.data, target });
    opened.open();
    await service.until(open.id);
    await service.close(0);

    const data = join(await tempDir(), "data");
    await cp(target, data, { recursive: true });
    const other = new FakeUpstream("paid");
    // What was being made at the time of the backup.
    const config = { limits: { unknownOutcome: "once" } };
    const restored = await startTestService({ data, providers: [other], config });
    expect(await restored.batch(done.id)).toEqual(await restored.until(done.id));
    const again = await restored.submit({ model: MODEL, items: items(2) }, { "idempotency-key": "done" });
    expect(again).toMatchObject({ id: done.id, status: "completed" });
    expect(await restored.until(open.id)).toMatchObject({ status: "completed", success_count: 3 });
    expect(other.requests).toHaveLength(3);
    expect(await marksOf(restored, open.id)).toEqual([true, true, true]);
    expect((await checkOf(data)).problems).toEqual([]);
    // It belongs to a service now: a later backup must not replace its data.
    await expect(backupStorage({ directory: service.data, target: data })).rejects.toMatchObject({
      code: expect.stringMatching(/FILE_EXISTS|DATA_DIRECTORY_IN_USE/),
    });
  });

  it("[BACKUP-2] restored elsewhere, a job that was created after the backup is found, or made again with a mark", async () => {
    const opened = gate();
    const provider = new FakeJobProvider({ name: "paid", isPaid: true });
    provider.waitForRate = () => opened.promise;
    const service = await startTestService({ providers: [provider] });
    const admin = await openAdmin({ directory: service.data });
    onTestFinished(() => admin.close());
    await admin.topUp("default", 10_000_000, { isReal: true });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(() => provider.inputs.size).toBe(1);
    const inputs = [...provider.inputs];
    const target = join(await tempDir(), "backup");
    await backupStorage({ directory: service.data, target });
    opened.open();
    await service.until(id);
    await service.close(0);
    expect(provider.jobs.size).toBe(1);

    const areMarked = async (at: string, jobs: FakeJobProvider) => {
      const data = join(await tempDir(), at);
      await cp(target, data, { recursive: true });
      const restored = await startTestService({ data, providers: [jobs] });
      expect(await restored.until(id)).toMatchObject({ status: "completed", success_count: 2 });
      const marks = await marksOf(restored, id);
      await restored.close(0);
      expect((await checkOf(data)).problems).toEqual([]);
      return marks;
    };
    expect(await areMarked("found", provider)).toEqual([false, false]);
    expect(provider.jobs.size).toBe(1);
    // Its list does not show the job.
    const forgetful = new FakeJobProvider({ name: "paid", isPaid: true });
    for (const [name, lines] of inputs) forgetful.inputs.set(name, lines);
    expect(await areMarked("lost", forgetful)).toEqual([true, true]);
    expect(forgetful.jobs.size).toBe(1);
  });

  it("[BACKUP-2] marks what a paid upstream has not made yet, also what no job is made for yet, and nothing that is free", async () => {
    const paid = new FakeJobProvider({ name: "paid", isPaid: true });
    const free = new FakeUpstream("free", { isFree: true });
    const drawings = new FakeProvider();
    const providers = [paid, free, drawings];
    const config = { features: { acceptWithoutWorkers: true } };
    const service = await startTestService({ workers: false, config, providers });
    const admin = await openAdmin({ directory: service.data });
    onTestFinished(() => admin.close());
    await admin.topUp("default", 10_000_000, { isReal: true });
    const made = [];
    for (const provider of ["paid", "free", "procedural"])
      made.push(await service.submit({ model: MODEL, items: items(1), provider }));
    const target = join(await tempDir(), "backup");
    await backupStorage({ directory: service.data, target });
    await service.close(0);
    const { stores, close } = await openStorage(LOCAL, { directory: target });
    const marks = made.map(async ({ id }) => (await stores.read.items.byCustomId(id, "i1"))?.maybePaid);
    expect(await Promise.all(marks).finally(close)).toEqual(["once", "no", "no"]);
    const restored = await startTestService({ data: target, providers });
    for (const { id } of made) await restored.until(id);
    const later = await Promise.all(made.map(({ id }) => marksOf(restored, id)));
    expect(later).toEqual([[true], [false], [false]]);
  });

  it("[BACKUP-3] killed, it is no data directory, or the earlier backup; the same command goes on", async () => {
    const { data } = await usedDirectory();
    const target = join(await tempDir(), "backup");
    const blobs = fileBlobs(join(data, DATA_FILES.blobs));
    const fill = async (name: string) => {
      for (let i = 0; i < 200; i++) await blobs.put(`links/${name}${i}`, Buffer.alloc(20_000, i));
    };
    const killed = async (name: string) => {
      const run = startNode([BIN, "admin", "backup", target, "--data", data, "-q"]);
      const isBegun = () => existsSync(join(target, DATA_FILES.blobs, "links", name));
      await expect.poll(isBegun, { interval: 1, timeout: 20_000 }).toBe(true);
      run.child.kill("SIGKILL");
      expect((await run.exited).signal).toBe("SIGKILL");
    };
    await fill("a");
    await killed("a0");
    expect(await readdir(target)).not.toContain(DATA_FILES.database);
    await expect(startTestService({ data: target })).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    const { files } = await backupStorage({ directory: data, target });
    expect(await checkOf(target)).toMatchObject({ images: 5, problems: [] });
    await fill("b");
    await killed("b0");
    expect(await checkOf(target)).toMatchObject({ images: 5, problems: [] });
    expect(await backupStorage({ directory: data, target })).toMatchObject({ files });
  });

  it("[BACKUP-3] killed in its first moments, it is begun again", async () => {
    const { data } = await usedDirectory();
    const target = await tempDir();
    await writeFile(join(target, DATA_FILES.lock), "");
    await writeFile(join(target, `.${DATA_FILES.backup}.0123456789ab.partial`), "{");
    await backupStorage({ directory: data, target });
    expect(await checkOf(target)).toMatchObject({ images: 5, problems: [] });
    const gone = await tempDir();
    await writeFile(join(gone, DATA_FILES.lock), "");
    await writeFile(join(gone, "letter.txt"), "dear");
    await expect(backupStorage({ directory: data, target: gone })).rejects.toMatchObject({
      code: "FILE_EXISTS",
    });
  });

  it("refuses a directory that is something else, and one inside of the data", async () => {
    const { data } = await usedDirectory();
    const other = await tempDir();
    await writeFile(join(other, "letter.txt"), "dear");
    await expect(backupStorage({ directory: data, target: other })).rejects.toMatchObject({
      code: "FILE_EXISTS",
    });
    const inside = join(data, DATA_FILES.blobs, "mine");
    await expect(backupStorage({ directory: data, target: inside })).rejects.toMatchObject({ code: "USAGE" });
    expect([await readdir(other), existsSync(inside)]).toEqual([["letter.txt"], false]);
  });

  it("names a file that the data itself has lost, and copies the rest", async () => {
    const { data, id } = await usedDirectory();
    const { stores, close } = await openStorage(LOCAL, { directory: data });
    const [lost] = await stores.read.outputs.ofBatch(id);
    await close();
    await rm(join(data, DATA_FILES.blobs, lost?.blobKey ?? ""));
    const target = join(await tempDir(), "backup");
    expect(await backupStorage({ directory: data, target })).toMatchObject({
      files: 4,
      missing: [lost?.blobKey],
    });
  });
});
