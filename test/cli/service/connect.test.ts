import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { runInProcess } from "../../support/cli-in-process.ts";
import { tempDir } from "../../support/temp-dir.ts";

it("[CONF-3] a command reads the configuration of its own working directory, not of the process", async () => {
  const cwd = await tempDir();
  await writeFile(join(cwd, "imgbatch.config.json"), '{"unknown": 1}');
  const { code, stderr } = await runInProcess(["list"], { cwd });
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining("imgbatch.config.json") });
});
