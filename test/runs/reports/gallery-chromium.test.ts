import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { thumbnail } from "../../../src/imaging/thumbnail.ts";
import { writeGallery } from "../../../src/runs/reports/gallery.ts";
import { closeBrowserAtEnd, findBarriers, openPage } from "../../support/browser.ts";
import { CHROMIUM } from "../../support/chromium.ts";
import { HOSTILE, reportOf } from "../../support/report.ts";
import { tempDir } from "../../support/temp-dir.ts";

const error = { code: "SAFETY_BLOCKED", message: "refused" };
const ATTACKS = [...HOSTILE, '</p><iframe srcdoc="<script>parent.document.title=1</script>"></iframe>'];

/** Acts of a page that a test cannot click: written into a copy of it, where the policy lets it run. */
const PROBE = `
  const says = {};
  const pics = document.querySelectorAll(".pic");
  const dialog = document.querySelector("dialog");
  const key = (name) => dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  const shown = () => document.querySelectorAll(".sheet > li:not([hidden])").length;
  says.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  says.all = shown();
  document.querySelector("[data-kind=refused]").click();
  says.failed = shown();
  document.querySelector("[data-kind=all]").click();
  pics[0].click();
  says.opened = dialog.open && dialog.querySelector(".stage img").getAttribute("src");
  key("ArrowRight");
  says.next = dialog.querySelector(".stage img").getAttribute("src");
  key("End");
  says.last = dialog.querySelector(".stage").textContent;
  key("Home");
  // The page hears of it first: its own listener gives the focus back.
  dialog.addEventListener("close", () => {
    says.focus = document.activeElement === pics[0];
    const search = document.querySelector("input");
    const find = (words) => {
      search.value = words;
      search.dispatchEvent(new Event("input"));
      return new Promise((done) => setTimeout(() => done(shown()), 100));
    };
    (async () => {
      says.byFacts = [await find("64"), await find("PNG"), await find("kB")];
      says.byError = [await find("safety_BLOCKED"), await find("REFUSED")];
      says.byId = await find("i0");
      says.found = await find("RED fox");
      const small = pics[0].querySelector("img");
      // It is loaded when the browser has drawn a frame.
      while (small.naturalWidth === 0) await new Promise((done) => setTimeout(done, 10));
      says.small = small.naturalWidth;
      says.broken = [...document.images].filter((each) => each.complete && each.naturalWidth === 0).length;
      document.title = JSON.stringify(says);
    })();
  });
  dialog.close();
`;

/** Says what is in a page of very many images while somebody goes through it. */
const LONG_PROBE = `
  const says = {};
  const shown = () => document.querySelectorAll(".sheet > li").length;
  const rest = document.querySelector(".rest");
  says.first = shown();
  rest.click();
  says.more = shown();
  document.querySelector(".pic").click();
  dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true, cancelable: true }));
  says.last = document.querySelector(".stage").textContent;
  document.querySelector("dialog").close();
  document.querySelector("[data-kind=refused]").click();
  says.failed = shown();
  says.rest = rest.hidden;
  document.querySelector("[data-kind=all]").click();
  says.again = shown();
  document.title = JSON.stringify(says);
`;

async function makePage(): Promise<{ dir: string; page: string; probed: string }> {
  const dir = await tempDir();
  await mkdir(join(dir, "images"));
  const bytes = await sharp({ create: { width: 64, height: 48, channels: 3, background: "#2f5fd0" } })
    .png()
    .toBuffer();
  const images = ["a red fox", ...ATTACKS].map((prompt, i) => ({ id: `i${i}`, prompt }));
  for (const { id } of images) await writeFile(join(dir, "images", `${id}.png`), bytes);
  const report = reportOf([...images, { id: "refused", prompt: "x", error }], { name: ATTACKS[0] ?? "" });
  const decoding = new Decoding();
  const page = await writeGallery(dir, report, {
    loadThumbnail: async () => (bytes, edge) => thumbnail(bytes, edge, decoding),
  });
  const html = await readFile(page, "utf8");
  const probed = join(dir, "probed.html");
  const open = html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, "");
  await writeFile(probed, open.replace("</body>", `<script>${PROBE}</script></body>`));
  return { dir, page, probed };
}

/** Opens a page from disk, in a window of this width, and returns the document that its script puts into its title. */
async function saidIn(file: string, width: number): Promise<unknown> {
  const page = await openPage(`file://${file}`, { viewport: { width, height: 900 } });
  await page.waitForFunction("document.title.startsWith('{')");
  return JSON.parse(await page.title());
}

describe.skipIf(CHROMIUM === null)("the contact sheet in Chromium", { timeout: 60_000 }, () => {
  closeBrowserAtEnd();

  it("runs its own script from disk, and nothing that a prompt holds", async () => {
    const page = await openPage(`file://${(await makePage()).page}`);
    expect(await page.title()).toBe("</script><script>document.title='owned'</script>");
    const dom = await page.content();
    expect(dom).toMatch(/<section class="tools"[^>]*large">/);
    expect(dom).not.toContain("<iframe");
  });

  it("of very many images a part is in the page at once, and all of them can be reached", async () => {
    const dir = await tempDir();
    const images = Array.from({ length: 1500 }, (_, i) => ({ id: `i${i}`, ...(i > 1497 ? { error } : {}) }));
    const page = await writeGallery(dir, reportOf(images), { loadThumbnail: async () => null });
    const html = await readFile(page, "utf8");
    const open = html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, "");
    await writeFile(page, open.replace("</body>", `<script>${LONG_PROBE}</script></body>`));
    expect(await saidIn(page, 1440)).toEqual({
      first: 300,
      more: 600,
      last: "SAFETY_BLOCKED\nrefused",
      failed: 2,
      rest: true,
      again: 300,
    });
  });

  it("shows two fields of metadata where nothing else names the images, and all with a switch", async () => {
    const dir = await tempDir();
    const metadata = { sku: "A-1", title: "<b>Fox & owl</b>", tags: ["red", "snow"] };
    const made = (id?: string) => {
      const source = { ...(id !== undefined && { id }), file: "a.jsonl", line: 1 };
      return reportOf([{ id: "a", prompt: "a fox", source, metadata }]);
    };
    const file = await writeGallery(dir, made(), { loadThumbnail: async () => null });
    const page = await openPage(`file://${file}`);
    const shown = () => page.locator(".meta p:visible").allInnerTexts();
    const [sku, title, tags] = ["sku: A-1", "title: <b>Fox & owl</b>", 'tags: ["red","snow"]'];
    expect(await shown()).toEqual([sku, title]);
    await page.getByRole("checkbox", { name: "Metadata" }).check();
    expect(await shown()).toEqual([sku, title, tags]);
    expect(await findBarriers(page)).toEqual([]);
    await writeGallery(dir, made("a"), { loadThumbnail: async () => null });
    await page.reload();
    expect(await shown()).toEqual([]);
    await page.getByRole("checkbox", { name: "Metadata" }).check();
    expect(await shown()).toEqual([sku, title, tags]);
    await page.getByRole("searchbox").fill("snow");
    expect(await page.locator(".sheet > li:visible").count()).toBe(1);
  });

  it("[REPORT-1] in a comparison the size of the pictures follows the slider, and a filter keeps rows and counts", async () => {
    const dir = await tempDir();
    const images = ["a fox", "an owl"].flatMap((prompt, line) =>
      ["low", "high"].map((quality) => ({
        id: `${line}-${quality}`,
        prompt,
        source: { file: "a.jsonl", line: line + 1, values: { quality } },
        ...(prompt === "an owl" && quality === "low" ? { error } : {}),
      })),
    );
    const file = await writeGallery(dir, reportOf(images), { loadThumbnail: async () => null });
    const page = await openPage(`file://${file}`);
    expect(await page.locator("thead th").allInnerTexts()).toEqual(["Prompt", "low", "high"]);
    const widthOf = async () => (await page.locator("td").first().boundingBox())?.width ?? 0;
    await page.getByRole("slider", { name: "Size of the pictures" }).fill("200");
    const small = await widthOf();
    await page.getByRole("slider").fill("400");
    expect((await widthOf()) - small).toBeGreaterThan(150);
    expect(await findBarriers(page)).toEqual([]);
    await page.getByRole("button", { name: "Refused1" }).click();
    expect(await page.locator("tbody th").allInnerTexts()).toEqual(["an owl"]);
    expect(await page.locator("tbody li:visible").count()).toBe(1);
    expect(await page.getByRole("status").innerText()).toBe("1 of 4");
  });

  it.each([390, 1440])(
    "at %i pixels nothing hangs over, filters and keys work, and every picture is there",
    async (width) => {
      const { probed } = await makePage();
      const said = await saidIn(probed, width);
      const all = ATTACKS.length + 2;
      expect(said).toEqual({
        overflow: 0,
        all,
        failed: 1,
        opened: "images/i0.png",
        next: "images/i1.png",
        last: "SAFETY_BLOCKED\nrefused",
        focus: true,
        byFacts: [0, 0, 0],
        byError: [1, 1],
        byId: 1,
        found: 1,
        small: 64,
        broken: 0,
      });
    },
  );
});

if (CHROMIUM === null)
  process.stderr.write(
    "skipped: the contact sheet in a browser, since there is no chromium on this machine\n",
  );
