import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { writeGallery } from "../../../src/runs/reports/gallery.ts";
import type { RunReport } from "../../../src/runs/reports/run-report.ts";
import { HOSTILE, reportOf } from "../../support/report.ts";
import { tempDir } from "../../support/temp-dir.ts";

const error = { code: "SAFETY_BLOCKED", message: "refused <here>" };
const small = (text: string) => async () => Buffer.from(text);

async function pageOf(report: RunReport, thumbnail = small("tiny")): Promise<{ dir: string; html: string }> {
  const dir = await tempDir();
  await mkdir(join(dir, "images"));
  for (const { files } of report.images)
    for (const { path } of files) await writeFile(join(dir, path), "an image");
  await writeGallery(dir, report, { loadThumbnail: async () => thumbnail });
  return { dir, html: await readFile(join(dir, "index.html"), "utf8") };
}

const count = (html: string, pattern: RegExp) => html.match(pattern)?.length ?? 0;

describe("the contact sheet", () => {
  it("holds a prompt whole, but of very many long ones the beginnings", async () => {
    const prompt = "é".repeat(8000);
    const of = (length: number) =>
      reportOf(Array.from({ length }, (_, i) => ({ id: `i${i}`, prompt }))).images.map(
        (image) => image.prompt,
      );
    expect(of(500)[499]).toBe(prompt);
    expect(of(2000)[1999]).toBe(`${"é".repeat(2000)}…`);
    const most = Array.from({ length: 30_000 }, (_, i) => ({
      id: `i${i}`,
      prompt: i < 9 ? prompt : "a fox",
    }));
    const { images } = reportOf(most);
    expect(images[0]?.prompt).toBe(`${"é".repeat(200)}…`);
    expect(images[29_999]?.prompt).toBe("a fox");
  });

  it("of more than a thousand cards the page has 300 at first and the others put by, and says so", async () => {
    const images = Array.from({ length: 1001 }, (_, i) => ({
      id: `i${i}`,
      entry: "x.png",
      path: "images.zip",
    }));
    const { html } = await pageOf(reportOf(images));
    const [atOnce = "", later = ""] = html.split("<template>");
    expect([count(atOnce, /<li class="ok">/g), count(later, /<li class="ok">/g)]).toEqual([300, 701]);
    expect(later).toContain(
      "</template></ul>\n<noscript>Without scripts, not all of the 1001 images are shown.</noscript>",
    );
    const { html: less } = await pageOf(reportOf(images.slice(1)));
    expect(count(less, /<li class="ok">/g)).toBe(1000);
    expect(less).not.toContain("<template>");
  });

  it("[REPORT-1] shows every image with prompt, id, size, type and link, and the run's model, cost, date and batch", async () => {
    const { html } = await pageOf(
      reportOf([{ id: "a fox #1", prompt: "a red fox", path: "images/a fox #1.png" }], { name: "My run" }),
    );
    expect(html).toContain("<title>My run</title>");
    expect(html).toContain('<p class="prompt" dir="auto">a red fox</p>');
    expect(html).toContain('href="images/a%20fox%20%231.png" aria-label="Open a fox #1"');
    expect(html).toContain(`src="data:image/webp;base64,${Buffer.from("tiny").toString("base64")}"`);
    expect(html).toContain("1024 × 768 · PNG · 12.3\u00a0kB");
    for (const fact of ["a-model", "$0.03", "2031-05-06 07:08 UTC", "<code>imgbatch_1</code> completed"])
      expect(html).toContain(fact);
    expect(html).not.toMatch(/\{\{\w+\}\}/);
  });

  it("[REPORT-1] compares prompts that repeat: a row a prompt, a column a value of the last list or a model", async () => {
    const of = (animal: string, season: string) => ({
      id: `${animal}-${season}`,
      prompt: `an ${animal} in ${season} light`,
      source: { file: "a.jsonl", line: 1, values: { animal, season } },
      asked: { quality: "high", seed: 7 },
      facts: { provider: "google", model_version: "a-model", cost: 0.039, took_ms: 4210 },
    });
    const animals = ["owl", "elk", "ox", "ant"];
    const images = animals.flatMap((animal) => [of(animal, "winter"), of(animal, "summer")]);
    const { html } = await pageOf(reportOf(images));
    expect(html).toContain('<th scope="col" dir="auto">winter</th><th scope="col" dir="auto">summer</th>');
    const rows = [...html.matchAll(/<th scope="row"><p class="prompt" dir="auto">([^<]*)/g)];
    expect(rows.map(([, words]) => words)).toEqual(animals.map((animal) => `an ${animal} in … light`));
    expect(html).toContain('<p class="asked" dir="auto">quality high · seed 7</p>');
    expect(html).toContain("12.3\u00a0kB · $0.039 · 4 s</p>");
    expect([count(html, /google/g), count(html, /a-model/g)]).toEqual([1, 1]);
    const byModel = ["a-model", "b-model"].flatMap((model) =>
      ["a fox", "an owl"].map((prompt) => ({ id: `${prompt}-${model}`, prompt, asked: { model } })),
    );
    const { html: models } = await pageOf(reportOf(byModel));
    expect(models).toContain(
      '<th scope="col" dir="auto">a-model</th><th scope="col" dir="auto">b-model</th>',
    );
    expect(count(models, /<tr><th scope="row">/g)).toBe(2);
    const withLists = ["a-model", "b-model"].flatMap((model) =>
      animals.slice(0, 3).map((animal) => ({
        ...of(animal, "winter"),
        id: `${animal}-${model}`,
        source: { file: "a.jsonl", line: 1, values: { animal, model } },
      })),
    );
    const { html: lists } = await pageOf(reportOf(withLists));
    expect([count(lists, /<th scope="row">/g), count(lists, /<th scope="col" dir/g)]).toEqual([3, 2]);
  });

  it("shows a prompt of several images once, and different prompts as a grid", async () => {
    const again = Array.from({ length: 4 }, (_, i) => ({ id: `i${i}`, prompt: "a fox" }));
    const { html } = await pageOf(reportOf(again));
    expect([count(html, /a fox/g), count(html, /<li class="ok">/g)]).toEqual([1, 4]);
    const { html: empty } = await pageOf(reportOf([]));
    expect(empty).toContain("This run has no images.");
    const wide = Array.from({ length: 7 }, (_, i) => ({
      id: `i${i}`,
      prompt: `${i}`,
      source: { file: "a.jsonl", line: 1, values: { n: `${i}` } },
    }));
    const grid = await pageOf(reportOf([...wide, { id: "x", prompt: "else" }]));
    expect(grid.html).not.toContain("<table");
  });

  it("shows who made an image with which seed, and every note, also of a failure", async () => {
    const made = { provider: "google <1>", model_version: "image-002", seed: 7 };
    const { html } = await pageOf(
      reportOf([
        { id: "fox", facts: { ...made, notes: ["JPEG instead of <PNG>", "may be paid twice: really"] } },
        { id: "owl", error, facts: { notes: ["tried twice"] } },
        { id: "elk", facts: { provider: "local", model_version: "image-002" } },
      ]),
    );
    expect(html).toContain('<p class="made" dir="auto">google &lt;1&gt; · seed 7</p>');
    expect(html).toContain("<code>image-002</code>");
    expect(html).toContain('<p class="note" dir="auto">JPEG instead of &lt;PNG&gt;</p>');
    for (const note of ["may be paid twice: really", "tried twice"])
      expect(html).toContain(`<p class="note" dir="auto">${note}</p>`);
  });

  it("[REPORT-1] shows failures with code and message, counts them, and says how to try again", async () => {
    const broken = { code: "PROVIDER_ITEM_FAILED", message: "broken" };
    const refused = { id: "owl", prompt: "an owl", error };
    const images = [{ id: "fox" }, refused, { id: "elk", error: broken }, { id: "ox", error: broken }];
    const { html } = await pageOf(reportOf(images, { directory: "my images" }));
    expect([count(html, /<li class="fail">/g), count(html, /<li class="refused fail">/g)]).toEqual([2, 1]);
    expect(html).toContain('<span class="code">SAFETY_BLOCKED</span>');
    expect(html).toContain("refused &lt;here&gt;");
    expect(html).toContain("2 images failed, 1 image refused: change what the prompts ask");
    expect(html).toMatch(/All<span>4<.*OK<span>1<.*Failed<span>2<.*Refused<span>1</su);
    expect(html).toContain("imgbatch retry &#39;my images&#39;");
    const { html: good } = await pageOf(reportOf([{ id: "fox" }]));
    expect(good).not.toContain('class="failed-note"');
    const { html: vain } = await pageOf(reportOf([refused]));
    expect(vain).not.toContain("imgbatch retry");
    const { html: later } = await pageOf(reportOf([{ id: "fox" }], { versionCount: 2 }));
    expect(later).toContain("2 earlier, in <code>versions/</code>");
    expect(good).not.toContain("versions/");
  });

  it("no text becomes markup, and only the page's own script may run", async () => {
    const images = HOSTILE.map((prompt, i) => ({ id: `i${i}`, prompt }));
    const { html } = await pageOf(
      reportOf([...images, { id: "<b>", error: { code: "<i>", message: "</li>" } }]),
    );
    expect(count(html, /<script>/g)).toBe(1);
    expect(count(html, /<img /g)).toBe(HOSTILE.length);
    expect(count(html, /<li class=/g)).toBe(HOSTILE.length + 1);
    expect(html).not.toMatch(/<b>|<i>|onerror="|\p{Cc}(?<!\n)|\uffff/u);
    const script = html.split("<script>")[1]?.split("</script>")[0] ?? "";
    const hash = createHash("sha256").update(script).digest("base64");
    expect(html).toContain(`script-src 'sha256-${hash}'`);
    expect(html).toContain("default-src 'none'");
  });

  it("needs no network: every address is data or a file of the run", async () => {
    const { html } = await pageOf(reportOf([{ id: "fox", prompt: "see https://example.com/x" }]));
    const addresses = [...html.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1] ?? "");
    expect(addresses.length).toBeGreaterThan(1);
    for (const address of addresses) expect(address).toMatch(/^(data:|images\/)/);
    expect(html).not.toMatch(/@import|url\(/);
  });

  it("without small pictures it shows the files themselves", async () => {
    const report = reportOf([{ id: "fox" }]);
    const dir = await tempDir();
    await writeGallery(dir, report, { loadThumbnail: async () => null });
    expect(await readFile(join(dir, "index.html"), "utf8")).toContain('src="images/fox.png"');
    const broken = await pageOf(report, async () => Promise.reject(new Error("no")));
    expect(broken.html).toContain('src="images/fox.png"');
  });

  it("names the entry of a ZIP that was kept", async () => {
    const dir = await tempDir();
    const report = reportOf([{ id: "fox", path: "images.zip", entry: "images/fox.png" }]);
    await writeGallery(dir, report, { loadThumbnail: async () => small("x") });
    const html = await readFile(join(dir, "index.html"), "utf8");
    expect(html).toContain('<a class="pic zip" href="images.zip">images/fox.png');
    expect(html).not.toContain("data:image");
  });

  it("embeds at most 2000 small pictures and 32 MB of them, smaller ones the more there are", async () => {
    const edges = new Set<number>();
    const dir = await tempDir();
    await mkdir(join(dir, "images"));
    await writeFile(join(dir, "images/x.png"), "an image");
    const images = (n: number) =>
      Array.from({ length: n }, (_, i) => ({ id: `i${i}`, path: "images/x.png" }));
    const made = async (n: number, bytes: number) => {
      const thumbnail = async (_: Uint8Array, edge: number) => {
        edges.add(edge);
        return Buffer.alloc(bytes);
      };
      await writeGallery(dir, reportOf(images(n)), { loadThumbnail: async () => thumbnail });
      const html = await readFile(join(dir, "index.html"), "latin1");
      return { embedded: count(html, /src="data:/g), linked: count(html, /src="images\/x\.png"/g) };
    };
    expect(await made(2001, 9)).toEqual({ embedded: 2000, linked: 1 });
    const { embedded, linked } = await made(12, 4_000_000);
    expect(embedded + linked).toBe(12);
    expect(embedded).toBeGreaterThanOrEqual(8);
    expect(embedded).toBeLessThanOrEqual(11);
    expect([...edges]).toEqual([224, 480]);
  });

  it("a page that shows this already stays, whenever it is looked at; anything new replaces it whole", async () => {
    const report = reportOf([{ id: "fox" }]);
    const { dir } = await pageOf(report);
    const path = join(dir, "index.html");
    const { ino } = await stat(path);
    let asked = 0;
    const loadThumbnail = async () => {
      asked++;
      return small("other");
    };
    await writeGallery(dir, { ...report, endedAt: "2032-01-01T00:00:00.000Z" }, { loadThumbnail });
    expect({ asked, ino: (await stat(path)).ino }).toEqual({ asked: 0, ino });
    await writeGallery(dir, reportOf([{ id: "fox", prompt: "new" }]), { loadThumbnail });
    expect(asked).toBe(1);
    expect((await stat(path)).ino).not.toBe(ino);
    expect((await readdir(dir)).sort()).toEqual(["images", "index.html"]);
  });

  it("a page of another program is never replaced", async () => {
    const dir = await tempDir();
    await writeFile(join(dir, "index.html"), "<!doctype html><title>my site</title>");
    const work = writeGallery(dir, reportOf([{ id: "fox" }]), { loadThumbnail: async () => null });
    await expect(work).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
    expect(await readFile(join(dir, "index.html"), "utf8")).toContain("my site");
  });

  it("an interruption leaves the old page and nothing half written", async () => {
    const { dir, html } = await pageOf(reportOf([{ id: "fox" }]));
    const stop = new AbortController();
    const loadThumbnail = async () => {
      stop.abort(new Error("stop"));
      return small("x");
    };
    const work = writeGallery(dir, reportOf([{ id: "owl" }]), { loadThumbnail, signal: stop.signal });
    await expect(work).rejects.toThrow("stop");
    expect(await readFile(join(dir, "index.html"), "utf8")).toBe(html);
    expect((await readdir(dir)).sort()).toEqual(["images", "index.html"]);
  });
});
