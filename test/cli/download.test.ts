import { mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import { type FakeOptions, png } from "../support/fake-service.ts";

/** A batch that somebody submitted elsewhere. */
async function bench(options: FakeOptions = {}): Promise<{ cli: Cli; id: string }> {
  const cli = await createCli(options);
  const body = JSON.stringify({
    model: "m",
    items: [
      { custom_id: "cat", prompt: "a" },
      { custom_id: "dog", prompt: "b" },
    ],
  });
  const headers = {
    authorization: "Bearer test-key-of-the-fake-service",
    "content-type": "application/json",
  };
  const answer = await fetch(`${cli.fake.url}/v1/images/batches`, { method: "POST", headers, body });
  return { cli, id: ((await answer.json()) as { id: string }).id };
}

it("download by id makes a directory with run state, results and images, and the second time repairs it", async () => {
  const { cli, id } = await bench();
  const { code, stdout } = await cli.here(["download", id, "-o", "out"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "out\n" });
  expect((await readdir(join(cli.cwd, "out"))).sort()).toEqual([
    "checks.jsonl",
    "images",
    "imgbatch.json",
    "index.html",
    "results.jsonl",
  ]);
  await writeFile(join(cli.cwd, "out", "images", "cat.png"), "damaged");
  expect((await cli.here(["download", id, "-o", "out", "--json"])).json()).toMatchObject({
    fetched_count: 1,
  });
  expect((await cli.here(["download", "out", "--json"])).json()).toMatchObject({ fetched_count: 0 });
  expect(await readFile(join(cli.cwd, "out", "images", "cat.png"))).toEqual(png("cat"));
});

it("a directory of another batch is not mixed with this one", async () => {
  const { cli, id } = await bench();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"other"}');
  await cli.here(["submit", "p.jsonl", "-o", "out"]);
  expect((await cli.here(["download", id, "-o", "out"])).code).toBe(6);
});

it("download --item saves one image under the item's name, a given file, or in a given directory", async () => {
  const { cli, id } = await bench();
  expect((await cli.here(["download", id, "--item", "cat"])).stdout).toBe("cat.png\n");
  await mkdir(join(cli.cwd, "pictures"));
  expect((await cli.here(["download", id, "--item", "cat", "-o", "pictures"])).stdout).toBe(
    "pictures/cat.png\n",
  );
  const { stdout, json } = await cli.here(["download", id, "--item", "dog", "-o", "x.png", "--json"]);
  expect(stdout).toContain("x.png");
  expect(json()).toMatchObject({ ok: true, custom_id: "dog", path: "x.png", verified: "sha256" });
  expect(await readFile(join(cli.cwd, "x.png"))).toEqual(png("dog"));
  expect((await cli.here(["download", id, "--item", "cow"])).code).toBe(10);
});

it("download --zip saves the checked ZIP", async () => {
  const { cli, id } = await bench();
  expect((await cli.here(["download", id, "--zip"])).stdout).toBe(`${id}.zip\n`);
  expect((await cli.here(["download", id, "--zip", "-o", "all.zip"])).code).toBe(0);
  expect(await readdir(cli.cwd)).toEqual(expect.arrayContaining(["all.zip", `${id}.zip`]));
  const bad = await bench({ tamper: (files) => files.filter((file) => file.name !== "images/cat.png") });
  expect((await bad.cli.here(["download", bad.id, "--zip"])).code).toBe(9);
  expect(await readdir(bad.cli.cwd)).toEqual([]);
});

it("status looks once and never waits; wait answers with the exit code of the outcome", async () => {
  const { cli, id } = await bench({ statuses: ["running"] });
  const { code, stdout } = await cli.here(["status", id]);
  expect(code).toBe(0);
  expect(stdout).toMatch(new RegExp(`^${id} {2}running`));
  expect((await cli.here(["wait", id, "--timeout", "300ms"])).code).toBe(124);
  for (const [status, expected] of [
    ["cancelled", 4],
    ["output_deleted", 10],
    ["completed", 0],
  ] as const) {
    for (const batch of cli.fake.batches) batch.statuses = [status];
    expect({ status, code: (await cli.here(["wait", id])).code }).toEqual({ status, code: expected });
  }
});

for (const [what, flag, file, whole] of [
  ["--item", ["--item", "cat"], "cat.png", "PNG"],
  ["--zip", ["--zip"], "all.zip", "PK"],
] as const) {
  it(`[SAVE-3] download ${what} leaves a file of other content alone unless it may replace it`, async () => {
    const { cli, id } = await bench();
    const target = join(cli.cwd, file);
    const fetch = (...more: string[]) => cli.here(["download", id, ...flag, "-o", file, ...more]);
    await writeFile(target, "mine");
    const refused = await fetch();
    expect(refused.code).toBe(6);
    expect(refused.stderr).toContain("--force");
    expect(await readFile(target, "utf8")).toBe("mine");
    expect(await readdir(cli.cwd)).toEqual([file]);
    const faults = what === "--zip" ? /\/download/ : /\/content/;
    cli.fake.fault(faults, { lie: (answer) => ({ ...answer, body: Buffer.from("damaged") }) });
    expect((await fetch("--force")).code).toBe(9);
    expect(await readFile(target, "utf8")).toBe("mine");
    expect((await fetch("--force")).code).toBe(0);
    expect((await readFile(target)).toString("latin1")).toContain(whole);
    const again = await fetch();
    expect({ code: again.code, stdout: again.stdout }).toEqual({ code: 0, stdout: `${file}\n` });
    expect(again.stderr).toContain(`${file} already exists with the same content`);
    expect(await readdir(cli.cwd)).toEqual([file]);
  });
}

it("[SAVE-3] what is no ordinary file is never replaced, and --force alone means nothing", async () => {
  const { cli, id } = await bench();
  await writeFile(join(cli.cwd, "real.png"), "mine");
  await symlink("real.png", join(cli.cwd, "link.png"));
  for (const flag of [["--item", "cat"], ["--zip"]])
    expect((await cli.here(["download", id, ...flag, "-o", "link.png", "--force"])).code).toBe(6);
  expect(await readFile(join(cli.cwd, "real.png"), "utf8")).toBe("mine");
  expect((await cli.here(["download", id, "--force"])).code).toBe(2);
});

it("a service without ZIPs has the images all the same, and the advice gets them", async () => {
  const { cli, id } = await bench();
  cli.fake.always(/\/download/, { status: 404 });
  const { code, stderr } = await cli.here(["download", id, "--zip", "-o", "z.zip"]);
  expect(code).toBe(10);
  expect(stderr).toContain(`The service has no ZIP of ${id}`);
  expect(stderr).toMatch(new RegExp(`next: imgbatch download ${id} .*one by one`));
  expect((await cli.here(["download", id])).code).toBe(0);
});

it("with another key than the run's, no other directory is advised", async () => {
  const { cli } = await bench();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt": "a cat"}');
  await cli.here(["submit", "p.jsonl"]);
  const stateFile = join(cli.cwd, "p-images", "imgbatch.json");
  const text = await readFile(stateFile, "utf8");
  await writeFile(stateFile, text.replace(/"key_fingerprint": "\w+"/g, '"key_fingerprint": "0123456789ab"'));
  await rm(join(cli.cwd, "p-images", "images"), { recursive: true });
  const made = cli.fake.batches.at(-1)?.id;
  const body = { error: { code: "BATCH_IMAGE_NOT_FOUND", message: "No such batch." } };
  cli.fake.always(new RegExp(`^GET .*${made}`), { status: 404, body });
  for (const args of [
    ["download", "p-images"],
    ["download", "p-images", "-o", "new"],
    ["status", "p-images"],
  ]) {
    const { code, stderr } = await cli.here(args);
    expect(code).toBe(10);
    expect(stderr).toContain("next: use the service and the key of the run again (--base-url, --data)");
    expect(stderr).not.toContain("another directory");
  }
  await writeFile(stateFile, "{");
  const damaged = await cli.here(["status", "p-images"]);
  expect([damaged.code, damaged.stderr.includes("next: `imgbatch list` has the batches")]).toEqual([6, true]);
});
