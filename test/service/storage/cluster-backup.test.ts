import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, it, onTestFinished, vi } from "vitest";
import { parseConfig } from "../../../src/config/load.ts";
import type { BlobsPlace, StoragePlaces } from "../../../src/config/storage-places.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import { runInProcess } from "../../support/cli-in-process.ts";
import { FakeUpstream, made, tinyPng } from "../../support/fake-provider.ts";
import type { FakeS3, S3Object } from "../../support/fake-s3.ts";
import { gate } from "../../support/gate.ts";
import { emptyDatabase, hasPostgres } from "../../support/postgres.ts";
import { postgresBin } from "../../support/postgres-server.ts";
import { content } from "../../support/realtime.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { watchSecret } from "../../support/secrets.ts";
import { items, MODEL, startServiceOn } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const SLOW = "vendorx-3-pro-image";

/** The commands of the guide: the dump, and the restore with its marks. */
async function documented(): Promise<[dump: string, restore: string]> {
  const page = await readFile(resolve(import.meta.dirname, "../../../src/service/CLUSTER.md"), "utf8");
  const section = page.slice(page.indexOf("## Backup and restore"), page.indexOf("## Kubernetes"));
  const [dump, restore, ...others] = [...section.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) => block);
  if (dump === undefined || restore === undefined || others.length > 0)
    throw new Error("the guide has other commands");
  return [dump, restore];
}

async function emptyPlaces(): Promise<StoragePlaces & { url: string; fake: FakeS3 }> {
  const [url, { fake, settings }] = [await emptyDatabase(), await fakeBucket()];
  const blobs = { kind: "s3", name: "s3://images/imgbatch", ...settings } as BlobsPlace;
  return { url, fake, blobs, database: { kind: "postgres", name: "postgres://db/imgbatch", url } };
}

/** From now on keeps what a bucket with versions keeps: what is there, and what comes, also when it is deleted. */
function keepVersions({ objects }: FakeS3): Map<string, S3Object> {
  const kept = new Map(objects);
  const set = objects.set.bind(objects);
  objects.set = (key, object) => {
    kept.set(key, object);
    return set(key, object);
  };
  return kept;
}

/** An API and a worker, as two processes would be. */
async function startBoth(storage: StoragePlaces, providers: readonly FakeUpstream[], port = 0) {
  // What was being made is asked for once more, with a mark.
  const config = parseConfig({ limits: { unknownOutcome: "once" } }, "test");
  const worker = await startServiceOn(storage, { role: "worker", providers, config });
  const address = { host: "127.0.0.1", port };
  const api = await startServiceOn(storage, { role: "api", providers, address, config });
  const close = async () => void (await Promise.all([api.close(0), worker.close(0)]));
  await expect.poll(async () => (await fetch(`${api.url}/readyz?for=work`)).status).toBe(200);
  return { url: api.url, close };
}

it.skipIf(!hasPostgres)(
  "[BACKUP-5] the guide's backup of PostgreSQL and a bucket, made under load, is restored elsewhere: all is there, and nothing is paid again without a mark",
  async () => {
    const [dump, restore] = await documented();
    const [old, cwd] = [await emptyPlaces(), await tempDir()];
    const shell = (script: string, url: string) => {
      const PATH = `${postgresBin()}:${process.env.PATH}`;
      return promisify(execFile)("bash", ["-euo", "pipefail", "-c", script], {
        cwd,
        env: { PATH, IMGBATCH_DATABASE_URL: url },
      });
    };
    const admin = await openAdmin({ directory: cwd, storage: old });
    const owner = { name: "me", accountName: "default", group: "default" };
    const key = (await admin.createKey({ ...owner, expiresAtMs: null, isPlayMoney: false }))?.key ?? "";
    watchSecret(key);
    await admin.topUp("default", 1_000_000_000);
    await admin.close();
    vi.stubEnv("IMGBATCH_API_KEY", key);

    const opened = gate();
    const forModel = (model: string) => (asked: string) => (asked === model ? model : null);
    const upstreams = () => [
      new FakeUpstream("paid", { concurrency: 8, modelFor: forModel(MODEL) }),
      new FakeUpstream("slow", { concurrency: 1, modelFor: forModel(SLOW) }),
    ];
    const [upstream, slow] = upstreams() as [FakeUpstream, FakeUpstream];
    for (const each of [upstream, slow])
      each.answer = async ({ prompt }) => {
        if (each === slow || prompt.startsWith("late")) await opened.promise;
        return made(await tinyPng(each.requests.length));
      };
    const before = await startBoth(old, [upstream, slow]);
    const submit = async (name: string, ...more: string[]) => {
      const where = ["--output", name, "--base-url", before.url, "--data", join(cwd, "data")];
      const run = await runInProcess(["submit", `${name}.txt`, ...where, "--interval", "20ms", ...more], {
        cwd,
      });
      expect([run.code, run.stderr]).toEqual([0, run.stderr]);
    };
    for (const [name, last] of [
      ["ended", "ended 3"],
      ["open", "late 3"],
      ["later", "later 3"],
    ])
      await writeFile(join(cwd, `${name}.txt`), `${name} 1\n${name} 2\n${last}\n`);
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const ask = (path: string, init: RequestInit = {}) => fetch(before.url + path, { ...init, headers });

    const create = async (body: object) => {
      const about = { method: "POST", body: JSON.stringify({ model: MODEL, ...body }) };
      const { id } = await (await ask("/v1/images/batches", about)).json();
      const status = async () => (await (await ask(`/v1/images/batches/${id}`)).json()).status;
      return { id, ends: () => expect.poll(status).toBe("completed") };
    };
    // Batches come, end, and lose their images, beside images in real time.
    let isOver = false;
    let rounds = 0;
    const load = async (prefix: string) => {
      while (!isOver) {
        const some = items(3).map((item) => ({ ...item, prompt: `${prefix} ${rounds} ${item.prompt}` }));
        const { id, ends } = await create({ items: some });
        const now = JSON.stringify(content(`${prefix} ${rounds}`));
        await (await ask(`/v1beta/models/${MODEL}:generateContent`, { method: "POST", body: now })).text();
        await ends();
        if (rounds++ % 2 === 0) await ask(`/v1/images/batches/${id}/outputs`, { method: "DELETE" });
      }
    };
    await submit("ended");
    await submit("open", "--detach");
    // One of the two is not asked for yet.
    const waiting = await create({ items: items(2), model: SLOW });
    await expect.poll(() => [upstream.asked["late 3"], slow.requests.length]).toEqual([1, 1]);
    const loads = [load("a"), load("b")];
    await expect.poll(() => rounds).toBeGreaterThan(4);

    const versions = keepVersions(old.fake);
    await shell(dump, old.url);
    const dumped = rounds;
    opened.open();
    await submit("later");
    await expect.poll(() => rounds).toBeGreaterThan(dumped + 4);
    isOver = true;
    await Promise.all([...loads, waiting.ends()]);
    const saved = new Map(versions);
    const { port } = new URL(before.url);
    await before.close();

    const place = await emptyPlaces();
    await shell(restore, place.url);
    for (const [name, object] of saved) place.fake.objects.set(name, object);
    const restored = await openAdmin({ directory: await tempDir(), storage: place });
    onTestFinished(() => restored.close());
    expect(await restored.check()).toMatchObject({ problems: [] });

    const others = upstreams();
    const after = await startBoth(place, others, Number(port));
    for (const name of ["ended", "open", "later"]) await submit(name);
    await waiting.ends();
    const { asked } = others[0] as FakeUpstream;
    expect(asked).toMatchObject({ "late 3": 1 });
    for (const known of ["ended 1", "open 1", "open 2", "later 1"]) expect(asked).not.toHaveProperty(known);
    expect(others[1]?.asked).toEqual({ "picture 1": 1, "picture 2": 1 });
    const lines = (await readFile(join(cwd, "open", "results.jsonl"), "utf8")).trim().split("\n");
    const marks = lines.map((line) => JSON.stringify(JSON.parse(line).notes ?? []).includes("paid twice"));
    expect(marks).toEqual([false, false, true]);
    await after.close();
    expect(await restored.check()).toMatchObject({ problems: [] });
    const usage = await restored.usage({ by: "provider", drawings: new Set() });
    const twice = usage.reduce((sum, { maybePaidTwice }) => sum + maybePaidTwice, 0);
    expect(twice).toBe(others.reduce((sum, { requests }) => sum + requests.length, 0));
  },
);
