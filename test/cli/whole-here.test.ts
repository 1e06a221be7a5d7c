import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import { createInProcessCli } from "../support/cli-in-process.ts";
import type { FakeOptions } from "../support/fake-service.ts";
import { PETS, petsCli, writePets } from "./pets.ts";

/** A run that is here, whose record the service has deleted since. */
async function recordDeleted(options: FakeOptions = {}, flags: string[] = []): Promise<Cli> {
  const cli = await petsCli(options);
  await cli.here(["submit", "pets.jsonl", ...flags]);
  const [made] = cli.fake.batches;
  const body = { error: { code: "BATCH_IMAGE_NOT_FOUND", message: "No such batch." } };
  cli.fake.always(new RegExp(`^(GET|POST) .*${made?.id}`), { status: 404, body });
  return cli;
}

const image = (cli: Cli, id: string) => join(cli.cwd, "pets-images", "images", `${id}.png`);

it("[WHOLE-1] a run whose record the service has deleted is whole while all files are intact here, for every command", async () => {
  const cli = await recordDeleted();
  const results = await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8");
  for (const command of ["download", "retry"]) {
    const { code, stderr } = await cli.here([command, "pets-images"]);
    expect([command, code]).toEqual([command, 0]);
    expect(stderr).toMatch(/the service has deleted imgbatch_\w+; the images are all here/);
    expect(stderr).toContain("3 of 3 images on disk and verified");
  }
  expect(await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8")).toBe(results);
  for (const command of ["wait", "status"]) expect((await cli.here([command, "pets-images"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(1);
});

it("[WHOLE-1] download and items of such a run need no earlier command that has noticed it", async () => {
  const cli = await recordDeleted({ failing: /dog/ });
  expect((await cli.here(["download", "pets-images"])).code).toBe(4);
  const { code, stdout, stderr } = await cli.here(["items", "pets-images"]);
  const rows = stdout.trim().split("\n");
  expect([code, rows.map((row) => row.split("\t").slice(0, 4))]).toEqual([
    0,
    [
      ["cat", "success", "1", ""],
      ["dog", "failed", "0", "PROVIDER_ITEM_FAILED"],
      ["cow", "success", "1", ""],
    ],
  ]);
  expect(stderr).toContain("the service has deleted imgbatch_");
  const [made] = (await cli.here(["items", "pets-images", "--json"])).json().items as object[];
  expect(made).toMatchObject({ custom_id: "cat", status: "success", image_count: 1 });
  expect((await cli.here(["items", cli.fake.batches[0]?.id ?? ""])).code).toBe(10);
});

it.each([[[]], [["--zip"]]])(
  "[WHOLE-1] a damaged file of such a run is exit 10, and the way to make only that one is advised (%j)",
  async (flags) => {
    const cli = await recordDeleted({}, flags);
    const [made] = cli.fake.batches;
    const lost = flags.length === 0 ? image(cli, "dog") : join(cli.cwd, "pets-images", `${made?.id}.zip`);
    await rm(lost);
    const { code, stderr } = await cli.here(["submit", "pets.jsonl", ...flags]);
    expect(code).toBe(10);
    expect(stderr).toMatch(/paid again:\nnext: imgbatch retry --include-lost pets-images /);
    expect((await cli.here(["wait", "pets-images"])).code).toBe(10);
    const again = await cli.here(["retry", "--include-lost", "pets-images"]);
    expect([again.stderr, again.code]).toEqual([expect.any(String), 0]);
    const sent = JSON.parse(cli.fake.batches[1]?.request ?? "{}");
    expect(sent.parent_batch_id).toBeUndefined();
    expect(cli.fake.batches[1]?.items).toHaveLength(flags.length === 0 ? 1 : 3);
  },
);

it("[WHOLE-1] failed images of such a run are made again without its deleted parent, and lost results are an error", async () => {
  const cli = await recordDeleted({ failing: /dog/ });
  expect((await cli.here(["submit", "pets.jsonl", "--no-retry"])).code).toBe(4);
  await rm(join(cli.cwd, "pets-images", "results.jsonl"));
  const { code, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect([code, json().error?.code, json().counts]).toEqual([
    10,
    "BATCH_IMAGE_OUTPUT_DELETED",
    { total: 3, success: 0, failed: 0, unknown: 0, missing: 3 },
  ]);
});

it.each([[[]], [["--zip"]]])(
  "[WHOLE-1] submit verifies a whole run without any service, with what it says of a replay (%j)",
  async (flags) => {
    const cli = await recordDeleted({}, flags);
    const requests = cli.fake.requests.length;
    const nowhere = { env: { IMGBATCH_BASE_URL: "http://127.0.0.1:1", IMGBATCH_API_KEY: "another" } };
    const again = await cli.here(["submit", "pets.jsonl", ...flags, "--json"], nowhere);
    expect(again.stderr).toMatch(/re-using imgbatch_\w+ submitted \d+ \w+ ago \(--new to generate again\)/);
    expect([again.code, again.json()]).toEqual([
      0,
      expect.objectContaining({ ok: true, replayed: true, fetched_count: 0, directory: "pets-images" }),
    ]);
    expect(again.json().batches).toEqual([expect.objectContaining({ id: cli.fake.batches[0]?.id })]);
    expect(cli.fake.requests).toHaveLength(requests);
    expect((await cli.here(["submit", "pets.jsonl", "--new"], nowhere)).code).toBe(7);
    expect((await cli.here(["status", "pets-images"], nowhere)).code).toBe(7);
  },
);

it("[WHOLE-1] images of a kept ZIP are unpacked from it when the service has deleted its record", async () => {
  const cli = await recordDeleted({}, ["--zip"]);
  const { code, json } = await cli.here(["download", "pets-images", "--json"]);
  expect([code, json().fetched_count]).toEqual([0, 3]);
  expect(await readdir(join(cli.cwd, "pets-images", "images"))).toHaveLength(3);
});

it("[WHOLE-1] a run of generate --file that is whole here is whole with another service, too", async () => {
  const cli = await createInProcessCli();
  await writeFile(cli.path("p.txt"), "a cat\na dog");
  const again = () => cli.run(["generate", "--file", "p.txt", "-o", "out"]);
  expect((await again()).code).toBe(0);
  const state = cli.path("out/imgbatch.json");
  await writeFile(state, (await readFile(state, "utf8")).replace(cli.fake.url, "https://first.example"));
  expect((await again()).code).toBe(0);
  const results = await readFile(cli.path("out/results.jsonl"), "utf8");
  const [name = ""] = await readdir(cli.path("out/images"));
  await rm(cli.path(`out/images/${name}`));
  expect((await again()).code).toBe(6);
  expect(await readFile(cli.path("out/results.jsonl"), "utf8")).toBe(results);
});

/** The run of another service or key, of which this one knows nothing. */
async function madeElsewhere(field: "base_url" | "key_fingerprint", value: string): Promise<Cli> {
  const cli = await recordDeleted({ failing: /dog/ });
  const path = join(cli.cwd, "pets-images", "imgbatch.json");
  const text = await readFile(path, "utf8");
  await writeFile(path, text.replaceAll(new RegExp(`"${field}": "[^"]*"`, "g"), `"${field}": "${value}"`));
  return cli;
}

it.each([
  ["base_url", "https://first.example", /another service \(https:\/\/first\.example, not http:/],
  ["key_fingerprint", "0123456789ab", /another API key, which alone can see it/],
] as const)(
  "a run with a missing image and another %s ends with 10 and the reason",
  async (field, value, why) => {
    const cli = await madeElsewhere(field, value);
    expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(4);
    expect((await cli.here(["status", "pets-images"])).code).toBe(0);
    await rm(image(cli, "cat"));
    for (const command of [
      ["submit", "pets.jsonl"],
      ["submit", "pets.jsonl", "--detach"],
      ["submit", "pets.jsonl", "--dry-run"],
      ["submit", "pets.jsonl", "--update"],
      ["status", "pets-images"],
      ["wait", "pets-images"],
      ["download", "pets-images"],
      ["retry", "pets-images"],
      ["retry", "--include-lost", "pets-images"],
    ]) {
      const { code, json, stderr } = await cli.here([...command, "--json"]);
      expect([command, code, json().error?.code]).toEqual([command, 10, "BATCH_IMAGE_NOT_FOUND"]);
      expect(json().error?.message).toMatch(why);
      expect(stderr).toMatch(
        /paid again if the other one still runs: imgbatch retry --include-lost --here pets-images /,
      );
    }
    expect((await cli.here(["cancel", "pets-images"])).code).toBe(6);
    expect(cli.fake.batches).toHaveLength(1);
  },
);

it("retry --here makes each missing image once, also after a lost answer, and the run is whole again", async () => {
  const cli = await madeElsewhere("key_fingerprint", "0123456789ab");
  cli.fake.options.failing = /none/;
  await rm(image(cli, "cat"));
  cli.fake.fault(/^POST/, { reset: "after" }, ...Array(3).fill({ status: 503 }));
  const again = ["retry", "--include-lost", "--here", "pets-images"];
  expect((await cli.here(again)).code).toBe(7);
  expect((await cli.here(again)).code).toBe(0);
  expect(cli.fake.batches.map(({ items }) => items.map((item) => item.custom_id))).toEqual([
    PETS,
    ["cat", "dog"],
  ]);
  expect(JSON.parse(cli.fake.batches[1]?.request ?? "{}").parent_batch_id).toBeUndefined();
  expect((await readdir(join(cli.cwd, "pets-images", "images"))).sort()).toEqual([
    "cat.png",
    "cow.png",
    "dog.png",
  ]);
  for (const command of ["status", "wait", "download", "retry"])
    expect([command, (await cli.here([command, "pets-images"])).code]).toEqual([command, 0]);
});

it("what another service may have made without an answer is not sent to this one unasked", async () => {
  const cli = await createCli();
  await writeFile(
    join(cli.cwd, "p.jsonl"),
    PETS.map((id) => JSON.stringify({ prompt: `a ${id}` })).join("\n"),
  );
  const submit = ["submit", "p.jsonl", "--max-batch", "1"];
  cli.fake.fault(/^POST/, ...Array(4).fill({ status: 503 }));
  expect((await cli.here(submit)).code).toBe(7);
  const path = join(cli.cwd, "p-images", "imgbatch.json");
  const fingerprints = /"key_fingerprint": "\w+"/g;
  await writeFile(
    path,
    (await readFile(path, "utf8")).replace(fingerprints, '"key_fingerprint": "0123456789ab"'),
  );
  expect((await cli.here(submit)).code).toBe(10);
  expect((await cli.here(["download", "p-images"])).code).toBe(10);
  expect(cli.fake.batches).toHaveLength(0);
  expect((await cli.here(["retry", "--include-lost", "--here", "p-images"])).code).toBe(0);
  expect((await cli.here(["download", "p-images"])).code).toBe(0);
  expect(cli.fake.batches.map(({ items }) => items.length)).toEqual([3]);
});

it("a service that cannot be reached, or a 404 of something before it, is not taken for one that does not know", async () => {
  const cli = await madeElsewhere("key_fingerprint", "0123456789ab");
  await rm(image(cli, "cat"));
  const results = await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8");
  const again = ["retry", "--include-lost", "--here", "pets-images"];
  const nowhere = { env: { IMGBATCH_BASE_URL: "http://127.0.0.1:1", IMGBATCH_API_KEY: "another" } };
  for (const command of [["submit", "pets.jsonl"], ["status", "pets-images"], again])
    expect([command, (await cli.here(command, nowhere)).code]).toEqual([command, 7]);
  cli.fake.fault(/^GET .*imgbatch_/, { status: 404 }, { status: 404 });
  for (const command of [["submit", "pets.jsonl"], again])
    expect((await cli.here([...command, "--json"])).json().error?.code).toBe("NOT_FOUND");
  expect(await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8")).toBe(results);
  expect(cli.fake.batches).toHaveLength(1);
});

it("--update of a whole run that this service does not know makes only what is new", async () => {
  const cli = await madeElsewhere("base_url", "https://first.example");
  await writePets(cli, [...PETS, "hen"]);
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(4);
  const sent = JSON.parse(cli.fake.batches[1]?.request ?? "{}");
  expect([sent.items.length, sent.parent_batch_id]).toEqual([1, undefined]);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(4);
  expect(cli.fake.batches[2]?.items.map((item) => item.custom_id)).toEqual(["dog"]);
});

it("the download of a cancelled run advises what its last line says, and nothing else", async () => {
  const cli = await petsCli({ statuses: ["running"] });
  await cli.here(["submit", "pets.jsonl", "--detach"]);
  await cli.here(["cancel", "pets-images"]);
  const { stderr } = await cli.here(["download", "pets-images"]);
  expect(stderr).toMatch(/next: imgbatch retry pets-images/);
  expect(stderr).not.toContain("--new");
});
