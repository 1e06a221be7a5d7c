import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../../support/cli.ts";
import { type FakeOptions, png } from "../../support/fake-service.ts";

const LOST = {
  status: 500,
  body: { error: { code: "BATCH_IMAGE_RESULT_MISSING", message: "It is gone." } },
};

async function bench(options: FakeOptions = {}): Promise<Cli> {
  const cli = await createCli(options);
  const text = ["cat", "dog", "cow"].map((id) => JSON.stringify({ custom_id: id, prompt: `a ${id}` }));
  await writeFile(join(cli.cwd, "pets.jsonl"), text.join("\n"));
  return cli;
}

const resultsOf = async (cli: Cli) =>
  (await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

it("[SAVE-1] a lost image is exit 7 with everything else here, in the results and in the reports", async () => {
  const cli = await bench();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  const { code, json, stderr } = await cli.run(["submit", "pets.jsonl", "--json", "--junit", "junit.xml"]);
  expect(code).toBe(7);
  expect(json()).toMatchObject({
    ok: false,
    exit_code: 7,
    error: { code: "BATCH_IMAGE_RESULT_MISSING" },
    counts: { total: 3, success: 2, failed: 0, missing: 1 },
    fetched_count: 2,
    retry: null,
  });
  expect(stderr).toContain("cat: BATCH_IMAGE_RESULT_MISSING: It is gone.");
  expect(stderr).toMatch(/next: run the same command again: it fetches what is missing/);
  expect(await readFile(join(cli.cwd, "junit.xml"), "utf8")).toContain('failures="1"');
  expect((await readdir(join(cli.cwd, "pets-images"))).sort()).toEqual([
    "images",
    "imgbatch.json",
    "index.html",
    "input.jsonl",
    "results.jsonl",
  ]);
  const again = await cli.here(["download", "pets-images", "--json"]);
  expect([again.code, again.json().fetched_count]).toEqual([7, 0]);
  expect(cli.fake.count(/\/download/)).toBe(1);
});

it("[SAVE-1] wrong bytes are exit 9, also beside an image that is lost", async () => {
  const cli = await bench();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  cli.fake.always(/dog\/content/, { lie: (answer) => ({ ...answer, body: png("other") }) });
  const { code, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect([code, json().error?.code]).toEqual([9, "VERIFY_FAILED"]);
  expect((await resultsOf(cli)).map((line) => line.error?.code)).toEqual([
    "BATCH_IMAGE_RESULT_MISSING",
    "VERIFY_FAILED",
    undefined,
  ]);
});

it("retry pays for what has failed, and never for what has no outcome in a completed batch", async () => {
  const cli = await bench({ failing: /cow/ });
  let isLate = true;
  cli.fake.always(/\/items\?/, {
    lie: (answer) => {
      const page = JSON.parse(answer.body.toString());
      for (const item of page.data)
        if (isLate && item.custom_id === "cat")
          Object.assign(item, { status: "pending", image_count: 0, error: null });
      return { ...answer, body: Buffer.from(JSON.stringify(page)) };
    },
  });
  const first = await cli.here(["submit", "pets.jsonl", "--allow-failures", "3", "--json"]);
  expect([first.code, first.json().error?.code]).toEqual([7, "BATCH_IMAGE_NOT_READY"]);
  expect(await readFile(join(cli.cwd, "pets-images", "retry.jsonl"), "utf8")).toBe(
    '{"custom_id":"cow","prompt":"a cow"}\n',
  );
  cli.fake.options.failing = /none/;
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  const sent = cli.fake.requests
    .filter(({ method }) => method === "POST")
    .map(({ body }) => JSON.parse(body));
  expect(sent[1].items).toEqual([{ custom_id: "cow", prompt: "a cow" }]);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  expect((await cli.here(["retry", "pets-images", "--include-lost"])).code).toBe(7);
  expect(cli.fake.batches).toHaveLength(2);
  isLate = false;
  expect((await cli.here(["retry", "pets-images"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(2);
});

it("a lost image is made and paid again only with --include-lost, and then the run is whole for good", async () => {
  const cli = await bench();
  const { always } = cli.fake;
  const lost = cli.fake.batches;
  always(/\/download/, LOST);
  cli.fake.fault(/cat\/content/, LOST, LOST, LOST);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(7);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  expect(lost).toHaveLength(1);
  const made = await cli.here(["retry", "pets-images", "--include-lost", "--json"]);
  expect([made.code, made.json().fetched_count]).toEqual([0, 1]);
  expect(lost).toHaveLength(2);
  expect(lost[1]?.items.map((item) => item.custom_id)).toEqual(["cat"]);
  const looks = cli.fake.count(/content/);
  for (const command of ["download", "retry"])
    expect((await cli.here([command, "pets-images"])).code).toBe(0);
  expect(cli.fake.count(/content/)).toBe(looks);
  expect((await resultsOf(cli))[0]).toMatchObject({
    batch_id: lost[1]?.id,
    files: [{ path: "images/cat.png" }],
  });
});

it("in a directory of `download` the advice for a lost image is not a command that cannot work there", async () => {
  const cli = await bench();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  await cli.here(["submit", "pets.jsonl"]);
  const id = cli.fake.batches[0]?.id ?? "";
  const { code, stderr } = await cli.here(["download", id]);
  expect(code).toBe(7);
  expect(stderr).toMatch(/next: .* with the directory that submitted them, or submit their prompts again/);
  expect(stderr).not.toContain(`--include-lost ${id}`);
  expect((await cli.here(["download", id])).stderr).not.toContain("nothing was missing");
});
