import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { expect, it } from "vitest";
import { imageStem } from "../../../src/runs/directory/names.ts";
import { createCli } from "../../support/cli.ts";

it("[NAMES-1] the words of a prompt follow the id in plain letters, whole words at most 55 characters together", () => {
  const name = (prompt: string, id = "item_000001") => imageStem(id, "words", { prompt });
  expect(name("A red fox")).toBe("item_000001-red-fox");
  expect(name("Ein Fuchs über Köln, 50 % naß!")).toBe("item_000001-ein-fuchs-uber-koln-50-nass");
  expect(name("赤い狐")).toBe("item_000001");
  expect(name(`the ${"very ".repeat(30)}end`)).toBe("item_000001-very-very-very-very-very-very-very-very");
  expect(name("supercalifragilisticexpialidocious".repeat(3))).toBe("item_000001");
  expect(name("a fox", "x".repeat(60))).toBe("x".repeat(60));
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 200 }), (prompt) => {
      expect(name(prompt)).toMatch(/^item_000001(-[a-z0-9]+)*$/);
      expect(`${name(prompt)}.png`.length).toBeLessThanOrEqual(60);
    }),
  );
});

it("[NAMES-1] words come by themselves only where the prompt has no id of its own", () => {
  const asked = { prompt: "red fox", source: { id: "fox" } };
  expect(imageStem("fox", "auto", asked)).toBe("fox");
  expect(imageStem("fox", "words", asked)).toBe("fox-red-fox");
  expect(imageStem("item_000001", "auto", { prompt: "red fox", source: {} })).toBe("item_000001-red-fox");
  expect(imageStem("item_000001", "id", { prompt: "red fox", source: {} })).toBe("item_000001");
  expect(imageStem("item_000001", "auto", undefined)).toBe("item_000001");
});

it("[NAMES-2] the files of a text file have words, a run keeps its names, and one of an older version too", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "pets.txt"), "a red fox\nan owl\n");
  const files = async (dir = "pets-images") => (await readdir(join(cli.cwd, dir, "images"))).sort();
  expect((await cli.here(["submit", "pets.txt"])).code).toBe(0);
  const named = ["item_000001-red-fox.png", "item_000002-owl.png"];
  expect(await files()).toEqual(named);
  expect((await cli.here(["submit", "pets.txt", "--names", "id"])).stderr).toContain("nothing to fetch");
  expect(await files()).toEqual(named);
  await cli.here(["submit", "pets.txt", "--names", "id", "-o", "plain"]);
  expect(await files("plain")).toEqual(["item_000001.png", "item_000002.png"]);
  const state = join(cli.cwd, "plain", "imgbatch.json");
  const { names, ...older } = JSON.parse(await readFile(state, "utf8"));
  expect(names).toBe("id");
  await writeFile(state, JSON.stringify(older));
  await writeFile(join(cli.cwd, "plain", "images", "item_000001.png"), "damaged");
  expect((await cli.here(["submit", "pets.txt", "-o", "plain"])).code).toBe(0);
  expect(await files("plain")).toEqual(["item_000001.png", "item_000002.png"]);
});

it("[NAMES-3] a run without a name is called as its first file, one that had none keeps none", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "spring pets.txt"), "a red fox\n");
  await cli.here(["submit", "spring pets.txt", "-o", "out"]);
  await cli.here(["submit", "-", "-o", "stdin"], { stdin: '{"prompt":"x"}' });
  expect(cli.fake.batches.map(({ request }) => JSON.parse(request).task_name)).toEqual([
    "spring pets",
    undefined,
  ]);
  await writeFile(join(cli.cwd, "x.jsonl"), '{"prompt":"x"}');
  expect((await cli.here(["submit", "x.jsonl", "-o", "stdin"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(2);
});
