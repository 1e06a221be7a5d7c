import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { closeBrowserAtEnd, findBarriers, type Look, openPage, overflowOf } from "../support/browser.ts";
import { CHROMIUM } from "../support/chromium.ts";
import { type Cli, createCli } from "../support/cli.ts";
import { tinyPng } from "../support/fake-provider.ts";

const LINES = [
  { custom_id: "fox", prompt: "a fox" },
  { custom_id: "owl", prompt: "an owl" },
  { custom_id: "logo", prompt: "a logo", output_count: 3 },
  { custom_id: "cat", prompt: "a cat" },
];

/** A run with five pictures of three lines and one failed image. */
async function createRun(): Promise<Cli> {
  const cli = await createCli({ failing: /^fail$/ });
  const lines = [...LINES, { custom_id: "bad", prompt: "fail" }];
  await writeFile(join(cli.cwd, "pets.jsonl"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  await cli.here(["submit", "pets.jsonl"]);
  return cli;
}

/** Runs `imgbatch review`, and opens its link. */
async function startReview(cli: Cli, look?: Look) {
  const { child, ended } = cli.start(["review", "pets-images", "--no-open"]);
  const link = await new Promise<string>((resolve) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      if (text.includes("\n")) resolve(text.trim());
    });
  });
  return { child, ended, link, page: await openPage(link, look) };
}

/** The decisions on disk, each as its id and what was decided. */
async function decisions(cli: Cli): Promise<string[]> {
  const text = await readFile(join(cli.cwd, "pets-images", "review.jsonl"), "utf8").catch(() => "");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const { id, verdict, choose, words } = JSON.parse(line);
      return [id, verdict === undefined ? `choose ${choose}` : verdict, words].filter(Boolean).join(" ");
    });
}

const large = (page: Page, id: string) => page.getByRole("dialog", { name: `Picture ${id}`, exact: true });
const shownTabs = (page: Page) => page.locator(".tabs button").allInnerTexts();

describe.skipIf(CHROMIUM === null)("the review of a run in Chromium", { timeout: 120_000 }, () => {
  closeBrowserAtEnd();

  it("[REV-20] each key that decides is on disk at once and shows the next picture; a kill loses none, and the next review begins after them", async () => {
    const cli = await createRun();
    const first = await startReview(cli);
    const { page } = first;
    await large(page, "fox").locator(".stage img").waitFor();
    await page.keyboard.press("k");
    await expect.poll(() => decisions(cli)).toEqual(["fox keep"]);
    await large(page, "owl").waitFor();
    await page.keyboard.press("e");
    await page.keyboard.type("the eyes are wrong");
    await page.keyboard.press("Enter");
    await expect.poll(() => decisions(cli)).toEqual(["fox keep", "owl again the eyes are wrong"]);
    first.child.kill("SIGKILL");
    await first.ended;
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("d");
    await page.getByText("The service does not answer. Is it still running?").first().waitFor();
    expect(await decisions(cli)).toHaveLength(2);

    const second = await startReview(cli);
    await large(second.page, "logo").locator(".pane img").nth(2).waitFor();
    await second.page.keyboard.press("2");
    await large(second.page, "cat").waitFor();
    await second.page.keyboard.press("d");
    await expect
      .poll(() => decisions(cli))
      .toEqual(["fox keep", "owl again the eyes are wrong", "logo_02 keep", "logo choose 2", "cat drop"]);
    second.child.kill("SIGINT");
    const { code, stdout, stderr } = await second.ended;
    expect(code).toBe(0);
    expect(stdout.trim().split("\n").at(-1)).toBe(
      "2 kept, 1 to make again, 1 dropped, 0 undecided, 1 without a picture",
    );
    expect(stderr).toMatch(/^next: imgbatch retry pets-images --rejected --edit$/m);
  });

  it("[REV-21] undo takes back decision after decision, also a choice; the filters show what is left", async () => {
    const cli = await createRun();
    const { page, child, ended } = await startReview(cli);
    await large(page, "fox").waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".tile img").nth(3).waitFor();
    expect(await page.evaluate("document.activeElement.getAttribute('aria-label')")).toBe(
      "fox, undecided: a fox",
    );
    await page.keyboard.press("x");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("3");
    await page.keyboard.press("k");
    await expect
      .poll(() => decisions(cli))
      .toEqual(["fox again", "logo_03 keep", "logo choose 3", "cat keep"]);
    expect(await shownTabs(page)).toEqual([
      "all 5",
      "undecided 1",
      "kept 2",
      "again 1",
      "dropped 0",
      "failed 1",
    ]);
    await page.getByRole("button", { name: /^undecided/ }).press("Enter");
    expect(await page.locator(".tile-id").allInnerTexts()).toEqual(["owl"]);
    await page.keyboard.press("u");
    await page.keyboard.press("u");
    await expect
      .poll(() => page.locator(".tile-id").allInnerTexts())
      .toEqual(["owl", "logo · 3 images", "cat"]);
    await page.keyboard.press("u");
    await page.keyboard.press("u");
    await page.getByText("There is nothing to undo.").waitFor();
    expect((await decisions(cli)).slice(4)).toEqual(["cat", "logo_03", "logo choose null", "fox"]);
    // What is decided goes out of the filter, and the focus goes on.
    await page.locator(".tile-open").first().focus();
    await page.keyboard.press("d");
    await expect
      .poll(() => page.locator(".tile-id").allInnerTexts())
      .toEqual(["owl", "logo · 3 images", "cat"]);
    expect(await page.evaluate("document.activeElement.getAttribute('aria-label')")).toBe(
      "owl, undecided: an owl",
    );
    child.kill("SIGINT");
    expect((await ended).stderr).toMatch(/^next: imgbatch review pets-images$/m);
  });

  it("[REV-21] what looks odd is a filter of its own, with the reason on the picture and beside it", async () => {
    const cli = await createRun();
    const dir = join(cli.cwd, "pets-images");
    const results = await readFile(join(dir, "results.jsonl"), "utf8");
    const owl = /"path":"images\/owl[^}]*"sha256":"(\w{64})"/.exec(results)?.[1];
    const look = {
      flat: true,
      bars: null,
      transparent: false,
      dhash: "0".repeat(16),
      colours: "A".repeat(256),
    };
    await writeFile(join(dir, "checks.jsonl"), `${JSON.stringify({ sha256: owl, rules: 1, look })}\n`);
    const { page, child, ended } = await startReview(cli);
    await large(page, "fox").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "looks odd 1" }).click();
    expect(await page.locator(".tile-id").allInnerTexts()).toEqual(["owl"]);
    await page.getByText("looks odd: one flat colour").first().waitFor();
    await page.locator(".tile-open").first().press("Enter");
    await large(page, "owl").getByText("looks odd: one flat colour").waitFor();
    child.kill("SIGINT");
    await ended;
  });

  it("[REV-22] a picture that was made again meanwhile is undecided, and nothing is decided on the one that was shown", async () => {
    const cli = await createRun();
    const { page, child, ended } = await startReview(cli);
    await large(page, "fox").waitFor();
    await page.keyboard.press("x");
    await large(page, "owl").waitFor();
    await expect.poll(() => decisions(cli)).toEqual(["fox again"]);
    // As if `retry` had made it again.
    const path = join(cli.cwd, "pets-images", "results.jsonl");
    const owl = /"path":"images\/owl[^}]*"sha256":"(\w{64})"/.exec(await readFile(path, "utf8"))?.[1] ?? "";
    const results = (await readFile(path, "utf8")).replaceAll(owl, "0".repeat(64));
    await writeFile(path, results);
    await page.keyboard.press("k");
    await page.getByText("owl has another picture by now").first().waitFor();
    expect(await decisions(cli)).toEqual(["fox again"]);
    child.kill("SIGINT");
    await ended;
  });

  it("[REV-22] an earlier version stands beside the picture of today with what was said about it, and can be chosen", async () => {
    const cli = await createRun();
    const dir = join(cli.cwd, "pets-images");
    const old = await tinyPng(9);
    const [fox = ""] = (await readFile(join(dir, "results.jsonl"), "utf8")).split("\n");
    const line = JSON.parse(fox);
    Object.assign(line.files[0], { path: "versions/fox.png", sha256: sha256Hex(old) });
    await mkdir(join(dir, "versions"));
    await writeFile(join(dir, "versions/fox.png"), old);
    await writeFile(join(dir, "versions/results.jsonl"), `${JSON.stringify(line)}\n`);
    const again = { id: "fox", version: sha256Hex(old), verdict: "again", words: "the tail is missing" };
    await writeFile(
      join(dir, "review.jsonl"),
      `${JSON.stringify({ ...again, date: "2030-01-02T03:04:05Z" })}\n`,
    );
    const { page, child, ended } = await startReview(cli);
    const dialog = large(page, "fox");
    await dialog.getByText("undecided").waitFor();
    await dialog.locator(".pane img").nth(1).waitFor();
    expect(await dialog.locator("figcaption").allInnerTexts()).toEqual([
      "before: the tail is missing",
      "today",
    ]);
    expect(await findBarriers(page)).toEqual([]);
    await page.keyboard.press("b");
    await expect.poll(() => dialog.locator(".pane").count()).toBe(1);
    await page.keyboard.press("b");
    await page.keyboard.press("0");
    await large(page, "owl").waitFor();
    await expect
      .poll(() => decisions(cli))
      .toEqual(["fox again the tail is missing", "fox keep", `fox choose ${sha256Hex(old)}`]);
    await page.keyboard.press("u");
    await dialog.getByText("undecided").waitFor();
    child.kill("SIGINT");
    await ended;
  });

  it.each([
    [390, "dark"],
    [1280, "light"],
    [2560, "dark"],
  ] as const)(
    "[REV-23] at %i pixels in %j colours nothing hangs over, and axe finds no barrier",
    async (width, colorScheme) => {
      const cli = await createRun();
      const { page, child, ended } = await startReview(cli, {
        viewport: { width, height: 844 },
        colorScheme,
      });
      await large(page, "fox").locator(".stage img").waitFor();
      const check = async () => {
        expect(await findBarriers(page)).toEqual([]);
        expect(await overflowOf(page)).toBe(0);
      };
      await check();
      await page.getByRole("button", { name: /^Again/ }).click();
      await large(page, "owl").waitFor();
      await page.keyboard.press("ArrowRight");
      await large(page, "logo").locator(".pane img").nth(2).waitFor();
      await check();
      await page.keyboard.press("e");
      await page.getByLabel("What should change in logo?").first().waitFor();
      await check();
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      await page.locator(".tile img").first().waitFor();
      await check();
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Shortcuts" }).waitFor();
      await check();
      child.kill("SIGINT");
      await ended;
    },
  );
});
