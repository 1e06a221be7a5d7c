import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { openPath } from "../../src/processes/programs.ts";
import { tempDir } from "../support/temp-dir.ts";

/** A desktop whose opener is this shell script, or none. Returns the directory of the script. */
async function desktop(script: string | null, display = ":0"): Promise<string> {
  const dir = await tempDir();
  vi.stubEnv("PATH", dir);
  vi.stubEnv("DISPLAY", display);
  vi.stubEnv("WAYLAND_DISPLAY", "");
  // Only the end of the opener counts: on a busy machine it comes after the patience with one that still runs.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  if (script !== null) {
    await writeFile(join(dir, "xdg-open"), `#!/bin/sh\n${script}\n`);
    await chmod(join(dir, "xdg-open"), 0o755);
  }
  return dir;
}

it("the opener of the desktop gets the path as one word", async () => {
  const dir = await desktop('printf "%s|" "$@" > "$0.got"');
  const path = "/a b/$(touch x); index.html";
  expect(await openPath(path, "linux")).toBe(true);
  expect(await readFile(join(dir, "xdg-open.got"), "utf8")).toBe(`${path}|`);
});

it("without a display, an opener or a program for the path, nothing is opened", async () => {
  const dir = await desktop('touch "$0.got"', "");
  expect(await openPath("/files")).toBe(false);
  await expect(readFile(join(dir, "xdg-open.got"))).rejects.toThrow("ENOENT");
  await desktop(null);
  expect(await openPath("/files")).toBe(false);
  await desktop("exit 3");
  expect(await openPath("/files")).toBe(false);
  await desktop("exit 0");
  expect(await openPath("/files")).toBe(true);
});
