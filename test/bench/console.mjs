import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { parseConfig } from "../../build/config/load.js";
import { silentLog } from "../../build/kernel/log.js";
import { startService } from "../../build/service/start-service.js";

const MODEL = "vendorx-3.1-flash-image";
const IMAGES = 200;
const ROUNDS = 5;
const PATIENCE_MS = 60_000;
/** A window of 2560x1440 pixels, and the same one zoomed out to half, where the gallery shows all images at once. */
const WINDOW = { least: 1, viewport: { width: 2560, height: 1440 } };
const ZOOMED_OUT = { least: IMAGES, viewport: { width: 5120, height: 2880 }, deviceScaleFactor: 0.5 };

/**
 * How long the thumbnails of 200 images of 1024x1024 pixels take in a browser, from the way to their gallery until all are
 * decoded and painted.
 */
export async function measureThumbnails() {
  const executablePath = chromium();
  if (executablePath === null) return [];
  const { chromium: driver } = await import("playwright-core");
  const data = await mkdtemp(join(tmpdir(), "imgbatch-bench-"));
  const service = await startService({
    config: parseConfig({ limits: { requestsPerMinute: 0 } }, "bench"),
    dataDirectory: data,
    address: { host: "127.0.0.1", port: 0 },
    announceUrl: true,
    workers: true,
    log: silentLog,
    providers: [await colourful()],
  });
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic"];
  const browser = await driver.launch({ executablePath, args });
  try {
    const path = `#/batches/${await makeBatch(service)}`;
    const unmade = await visit(browser, service, path, ZOOMED_OUT);
    const visits = [];
    const ordinary = [];
    for (let round = 0; round < ROUNDS; round++) {
      visits.push(await visit(browser, service, path, ZOOMED_OUT));
      ordinary.push(await visit(browser, service, path, WINDOW));
    }
    const best = (of, pick) => Math.min(...of.map((each) => pick(each).ms)).toFixed(0);
    const first = best(visits, (each) => each.first);
    const [{ second: last }] = visits;
    return [
      {
        name: "time until 200 thumbnails are painted in a window of 2560x1440 pixels, zoomed out to half",
        value: first / 1000,
        unit: "s",
        goal: { atMost: 1 },
        facts: {
          "the first visit of a browser": `${first} ms`,
          "its second visit": `${best(visits, (each) => each.second)} ms; ${last.requests} requests for thumbnails reached the service`,
          "before any of them is made": `${unmade.first.ms.toFixed(0)} ms`,
          [`not zoomed, ${ordinary[0].first.count} thumbnails`]: `${best(ordinary, (each) => each.first)} ms, second visit ${best(ordinary, (each) => each.second)} ms`,
        },
      },
    ];
  } finally {
    await browser.close();
    await service.close(0);
    await rm(data, { recursive: true, force: true });
  }
}

/** The first path of a Chromium; null where there is none. */
function chromium() {
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    try {
      return execFileSync("which", [name], { encoding: "utf8" }).trim();
    } catch {
      // The next name.
    }
  }
  process.stderr.write("skipped: thumbnails in a browser, since there is no chromium on this machine\n");
  return null;
}

/** A provider that has a few pictures, with as much in them as in a photograph, and gives them out in turn. */
async function colourful() {
  const pictures = [];
  for (let hue = 0; hue < 8; hue++) {
    const noise = { type: "gaussian", mean: 100 + hue * 10, sigma: 40 };
    const small = await sharp({ create: { width: 128, height: 128, channels: 3, noise } })
      .png()
      .toBuffer();
    pictures.push(await sharp(small).resize(1024, 1024).blur(2).png().toBuffer());
  }
  let next = 0;
  return {
    kind: "item",
    name: "procedural",
    concurrency: 2,
    serves: () => true,
    generate: async () => ({ images: [await distinct(pictures[next++ % 8], next)], modelVersion: null }),
    close: async () => {},
  };
}

/** The same picture as another file, so that its thumbnail is one of its own. */
function distinct(picture, number) {
  return sharp(picture)
    .withExif({ IFD0: { ImageDescription: String(number) } })
    .png({ compressionLevel: 1 })
    .toBuffer();
}

async function makeBatch({ url, credentials, feed }) {
  const ended = new Promise((done) => {
    feed.subscribe((event) => event.type === "batch" && event.status === "completed" && done());
  });
  const headers = { authorization: `Bearer ${credentials.api_key}`, "content-type": "application/json" };
  const items = Array.from({ length: IMAGES }, (_, n) => ({ prompt: `a fox in the snow, number ${n}` }));
  const init = { method: "POST", headers, body: JSON.stringify({ model: MODEL, items }) };
  const answer = await fetch(`${url}/v1/images/batches`, init);
  if (!answer.ok) throw new Error(await answer.text());
  await ended;
  return (await answer.json()).id;
}

/** Opens the gallery in a browser that knows nothing of it, and then once more after a reload of the page. */
async function visit(browser, service, path, { least, ...window }) {
  const context = await browser.newContext(window);
  try {
    const page = await context.newPage();
    await page.goto(await service.view.signInLink());
    await page
      .getByRole("link", { name: /200 of 200|completed/ })
      .first()
      .waitFor();
    const first = await open(page, path, least);
    await page.evaluate("location.hash = '#/money'; location.reload()");
    await page.getByRole("heading", { name: "Ledger" }).waitFor();
    return { first, second: await open(page, path, least) };
  } finally {
    await context.close();
  }
}

/** The time between two looks: one at each frame would take a part of the machine that is measured. */
const LOOK_MS = 20;

/**
 * In the page: from the change of its address until a frame with the pictures of all tiles was shown. That is the frame with a
 * mark, which is put into the page when all pictures have loaded: the browser reports its time, and shows no frame before all
 * that is in it is decoded and drawn. Fails when there are fewer than `least` after a minute.
 */
const PAINTED = (path, least) => `new Promise((done, fail) => {
  const from = performance.now();
  performance.clearResourceTimings();
  location.hash = ${JSON.stringify(path)};
  new PerformanceObserver((list) => {
    const [{ renderTime }] = list.getEntries();
    const entries = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/thumbnail"));
    const count = document.querySelectorAll(".tile img").length;
    done({ ms: renderTime - from, count, requests: entries.filter(({ transferSize }) => transferSize > 0).length });
  }).observe({ type: "element" });
  const look = () => {
    const tiles = document.querySelectorAll(".tile").length;
    const pictures = [...document.querySelectorAll(".tile img")];
    if (performance.now() - from > ${PATIENCE_MS}) return fail(new Error(pictures.length + " of " + tiles + " thumbnails"));
    if (tiles < ${least} || pictures.length < tiles || !pictures.every((each) => each.complete && each.naturalWidth > 0))
      return setTimeout(look, ${LOOK_MS});
    const mark = document.createElement("p");
    mark.setAttribute("elementtiming", "end");
    mark.textContent = "end";
    document.querySelector(".batch-head").append(mark);
  };
  look();
})`;

function open(page, path, least) {
  return page.evaluate(PAINTED(path, least));
}
