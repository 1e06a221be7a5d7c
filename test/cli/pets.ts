import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Cli, createCli } from "../support/cli.ts";
import type { FakeOptions } from "../support/fake-service.ts";

export const PETS = ["cat", "dog", "cow"];

/** The command line with `pets.jsonl` in its directory: a prompt for each id. */
export async function petsCli(options: FakeOptions = {}, ids: readonly string[] = PETS): Promise<Cli> {
  const cli = await createCli(options);
  await writePets(cli, ids);
  return cli;
}

export function writePets(cli: Cli, ids: readonly string[]): Promise<void> {
  const lines = ids.map((id) => JSON.stringify({ custom_id: id, prompt: `a ${id}` }));
  return writeFile(join(cli.cwd, "pets.jsonl"), lines.join("\n"));
}
