import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { imgbatch } from "../support/processes.ts";
import { Chain, type ChainItem, model } from "../support/upstreams/chain.ts";
import { startFake } from "./services.ts";

interface Line {
  custom_id: string;
  status: string;
  files: { path: string; sha256: string; width: number; height: number; mime_type: string }[];
  batch_id: string;
}

describe("a file of twenty prompts", () => {
  it.each(["native", "openai", "sdapi"] as const)(
    "becomes twenty images of %s, each made once",
    async (name) => {
      // One of them makes what it is asked for, in the size of real images.
      const options = name === "native" ? { size: null } : {};
      const { fake, entry, model: upstreamId } = await startFake(name, options);
      onTestFinished(() => fake.close());
      const { width, height } = fake.size ?? { width: 1024, height: 1024 };
      const providers = [
        {
          name: "pictures",
          models: { mine: upstreamId },
          ...entry,
          ...(name === "sdapi" ? { free: true } : {}),
        },
      ];
      const chain = await Chain.prepare({ models: [model("mine")], providers });
      onTestFinished(() => chain.close());
      const prompts = Array.from({ length: 20 }, (_, at) => `picture ${at + 1} of ${name}`);
      await writeFile(join(chain.directory, "prompts.txt"), `${prompts.join("\n")}\n`);
      const submit = ["submit", "prompts.txt", "-o", "out", "--max-cost", "5", "--json"];

      const { directory: cwd, env, where } = chain;
      // One of them by the built program.
      const run =
        name === "native" ? await imgbatch([...submit, ...where], { cwd, env }) : await chain.run(submit);
      expect([run.code, run.stdout, run.stderr]).toEqual([0, expect.any(String), expect.any(String)]);
      const text = await readFile(join(chain.directory, "out/results.jsonl"), "utf8");
      const lines: Line[] = text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      expect(lines).toHaveLength(20);
      for (const [at, line] of lines.entries()) {
        expect(line).toMatchObject({ status: "success", files: [{ mime_type: "image/png" }] });
        const [file] = line.files;
        const bytes = await readFile(join(chain.directory, "out", file?.path ?? ""));
        expect(fake.bill.get(prompts[at] ?? "")).toEqual([sha256Hex(bytes)]);
        expect(file).toMatchObject({ sha256: sha256Hex(bytes), width, height });
      }
      expect(fake.billed()).toBe(20);
      expect(fake.mostAtOnce()).toBeLessThanOrEqual(name === "sdapi" ? 1 : 4);

      const again = await chain.run(submit);
      expect([
        again.code,
        fake.billed(),
        fake.requests.filter(({ kind }) => kind === "images").length,
      ]).toEqual([0, 20, 20]);

      const listed = await chain.run(["items", lines[0]?.batch_id ?? "", "--json"]);
      const { items } = listed.json() as unknown as { items: ChainItem[] };
      expect(items.map(({ provider }) => provider)).toEqual(prompts.map(() => "pictures"));
      if (name === "native") expect(items[0]?.model_version).toBe(upstreamId);
      const [request] = fake.requests.filter(({ prompt }) => prompt === prompts[0]);
      const sent = request?.body as { seed?: number; generationConfig?: { seed?: number } };
      const seed = sent.seed ?? sent.generationConfig?.seed;
      // Only an image server promises that the seed decides the picture.
      if (name === "sdapi") expect([typeof seed, items[0]?.seed]).toEqual(["number", seed]);
      else expect([seed, null]).toContain(items[0]?.seed);
    },
  );
});
