import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../../support/cli.ts";
import type { FakeOptions } from "../../support/fake-service.ts";

const PETS = ["cat", "dog", "cow"];

/** A run that is here, whose record the service has deleted since. */
async function recordDeleted(options: FakeOptions = {}, flags: string[] = []): Promise<Cli> {
  const cli = await createCli(options);
  const lines = PETS.map((id) => JSON.stringify({ custom_id: id, prompt: `a ${id}` }));
  await writeFile(join(cli.cwd, "pets.jsonl"), lines.join("\n"));
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
  for (const command of [
    ["submit", "pets.jsonl"],
    ["download", "pets-images"],
    ["retry", "pets-images"],
  ]) {
    const { code, stderr } = await cli.here(command);
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
  expect(stderr).toContain("has deleted its record");
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
    expect(stderr).toMatch(/next: imgbatch retry --include-lost pets-images .* paid again/);
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
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(4);
  await rm(join(cli.cwd, "pets-images", "results.jsonl"));
  const { code, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect([code, json().error?.code]).toEqual([10, "BATCH_IMAGE_NOT_FOUND"]);
});

it("[REPAIR-2] deleted outputs and one lost file: every command advises the repair that makes one image", async () => {
  const cli = await createCli();
  const lines = PETS.map((id) => JSON.stringify({ custom_id: id, prompt: `a ${id}` }));
  await writeFile(join(cli.cwd, "pets.jsonl"), lines.join("\n"));
  await cli.here(["submit", "pets.jsonl"]);
  await cli.here(["delete", "pets-images", "--outputs"]);
  expect((await cli.here(["wait", "pets-images"])).code).toBe(0);
  await rm(image(cli, "dog"));
  for (const command of [
    ["submit", "pets.jsonl"],
    ["download", "pets-images"],
    ["retry", "pets-images"],
  ]) {
    const { code, stderr } = await cli.here(command);
    expect([command, code]).toEqual([command, 10]);
    expect(stderr).toMatch(/next: imgbatch retry --include-lost pets-images .* paid again/);
    expect(stderr).not.toContain("--new makes");
  }
  const waited = await cli.here(["wait", "pets-images"]);
  expect([waited.code, waited.stderr]).toEqual([
    10,
    expect.stringContaining("next: imgbatch download pets-images"),
  ]);
  expect((await cli.here(["retry", "--include-lost", "pets-images"])).code).toBe(0);
  expect(cli.fake.batches[1]?.items).toHaveLength(1);
});

it("[REPAIR-2] the download of a cancelled run advises what its last line says, and nothing else", async () => {
  const cli = await createCli({ statuses: ["running"] });
  const lines = PETS.map((id) => JSON.stringify({ custom_id: id, prompt: `a ${id}` }));
  await writeFile(join(cli.cwd, "pets.jsonl"), lines.join("\n"));
  await cli.here(["submit", "pets.jsonl", "--detach"]);
  await cli.here(["cancel", "pets-images"]);
  const { stderr } = await cli.here(["download", "pets-images"]);
  expect(stderr).toMatch(/next: imgbatch retry pets-images/);
  expect(stderr).not.toContain("--new");
});
