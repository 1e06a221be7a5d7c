import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, it, vi } from "vitest";
import { createCli } from "../support/cli.ts";

beforeEach(() => {
  vi.stubEnv("DISPLAY", "");
  vi.stubEnv("WAYLAND_DISPLAY", "");
});

async function withRun(...flags: string[]) {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "pets.jsonl"), '{"custom_id":"cat","prompt":"a cat"}\n');
  const submitted = await cli.here(["submit", "pets.jsonl", ...flags]);
  return { cli, submitted, sheet: join(cli.cwd, "pets-images", "index.html") };
}

it("open names the contact sheet of a run; without a directory, of the newest run in this one", async () => {
  const { cli, sheet } = await withRun();
  for (const args of [["pets-images"], ["pets-images/"], []]) {
    const { code, stdout, stderr } = await cli.here(["open", ...args]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${sheet}\n` });
    expect(stderr).toContain("nothing can be opened here");
  }
  expect((await cli.here(["open", "--json"])).json()).toEqual({
    ok: true,
    path: sheet,
    opened: false,
    exit_code: 0,
  });
  await rm(sheet);
  const without = await cli.here(["open"]);
  expect(without.stdout).toBe(`${join(cli.cwd, "pets-images")}\n`);
  expect(without.stderr).toContain("has no contact sheet");
});

it("open shows an image, as generate says at its end", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "a fox.png"), "");
  const { code, stdout } = await cli.here(["open", "a fox.png"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${join(cli.cwd, "a fox.png")}\n` });
  expect((await cli.here(["open", "none.png"])).code).toBe(2);
  await writeFile(join(cli.cwd, "owl.png"), "");
  const both = await cli.here(["open", "a fox.png", "owl.png", "--json"]);
  expect(both.json().opened).toEqual(
    ["a fox.png", "owl.png"].map((name) => ({ path: join(cli.cwd, name), opened: false })),
  );
});

it("a directory that is no run is exit 2, and so is one without any run", async () => {
  const { cli } = await withRun();
  await mkdir(join(cli.cwd, "other"));
  for (const dir of ["other", "missing"]) {
    const { code, stdout, stderr } = await cli.here(["open", dir]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/has no imgbatch\.json|There is no run directory/);
  }
  await rm(join(cli.cwd, "pets-images"), { recursive: true });
  expect((await cli.here(["open", "--json"])).json()).toMatchObject({
    exit_code: 2,
    error: { code: "USAGE" },
  });
});

it("submit --open names the contact sheet at the end, and is refused where there will be none", async () => {
  const { submitted, sheet } = await withRun("--open");
  expect(submitted.code).toBe(0);
  expect(submitted.stdout).toBe("pets-images\n");
  expect(submitted.stderr).toContain(`the contact sheet is ${sheet}`);
  for (const flag of ["--no-gallery", "--detach"]) {
    const refused = await withRun("--open", flag);
    expect(refused.submitted.code).toBe(2);
    expect(refused.submitted.stderr).toContain(flag);
    expect(refused.cli.fake.requests).toHaveLength(0);
  }
});
