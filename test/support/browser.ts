import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, chromium, type Page, type ViewportSize } from "playwright-core";
import { afterAll, expect, onTestFinished } from "vitest";
import { CHROMIUM } from "./chromium.ts";
import { watchSecret } from "./secrets.ts";
import type { TestService } from "./service.ts";

let browser: Promise<Browser> | null = null;
/** The page that tests use one after the other: a window of its own costs the browser more than most tests do. */
let shared: { page: Page; isFree: boolean } | null = null;

/** One browser for the tests of a file, started by the first one that needs it. Call it at the top of the file. */
export function closeBrowserAtEnd(): void {
  afterAll(async () => {
    await (await browser)?.close();
    browser = null;
    shared = null;
  });
}

/** Each process of the browser loads and compiles everything anew. */
const ONE_PROCESS = [
  "--disable-site-isolation-trials",
  "--process-per-site",
  "--renderer-process-limit=1",
  "--in-process-gpu",
];

function launch(): Promise<Browser> {
  const executablePath = execFileSync("which", [CHROMIUM ?? "chromium"], { encoding: "utf8" }).trim();
  return chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", ...ONE_PROCESS],
  });
}

const PATIENCE_MS = 20_000;

/** How a page is shown. */
export interface Look {
  /** In pixels. */
  viewport?: ViewportSize;
  colorScheme?: "light" | "dark";
}

/**
 * Opens a page in a profile in which nothing is stored for its address. The test fails when a script of the page fails,
 * or breaks the content policy.
 */
export async function openPage(url: string, look: Look = {}): Promise<Page> {
  const page = await takePage();
  const { viewport = { width: 1280, height: 800 }, colorScheme = "light" } = look;
  await page.setViewportSize(viewport);
  await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(String(error.stack)));
  page.on("console", (message) => {
    // Answers such as 401 and 404 are the subject of tests.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(message.text());
  });
  onTestFinished(async () => {
    await giveBack(page);
    expect(faults, "faults in the page").toEqual([]);
  });
  // The page of an earlier service may have the same address up to its `#`: then only a reload loads it anew.
  const isThere = await page.evaluate(`history.replaceState(null, "", ${JSON.stringify(url)})`).then(
    () => true,
    () => false,
  );
  await page.context().setOffline(false);
  await (isThere ? page.reload() : page.goto(url));
  return page;
}

/** The shared page, or one in a profile of its own while the test has that already. */
async function takePage(): Promise<Page> {
  browser ??= launch();
  if (shared?.isFree) {
    shared.isFree = false;
    return shared.page;
  }
  const context = await (await browser).newContext();
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  shared ??= { page, isFree: false };
  return page;
}

async function giveBack(page: Page): Promise<void> {
  const context = page.context();
  if (page !== shared?.page) return context.close();
  for (const other of context.pages()) if (other !== page) await other.close();
  for (const event of ["pageerror", "console", "download", "request"]) {
    await page.removeAllListeners(event);
    await context.removeAllListeners(event);
  }
  await page.unrouteAll({ behavior: "ignoreErrors" });
  // A later service may get the same port.
  await page.evaluate("sessionStorage.clear(), localStorage.clear()").catch(() => {});
  // Another page in between would cost the browser much. This one must not ask that service for anything.
  await context.setOffline(true);
  shared.isFree = true;
}

/** Opens the console of a service, signed in with a one-time code. */
export async function openConsole(service: TestService, look?: Look): Promise<Page> {
  const link = (await service.signInLink?.()) ?? "";
  watchSecret(new URL(link).hash.slice("#code=".length));
  const page = await openPage(link, look);
  await page.getByRole("navigation").waitFor();
  return page;
}

/** Drops files onto an element, as from another window. */
export async function dropFiles(
  page: Page,
  selector: string,
  files: Record<string, string | Buffer>,
): Promise<void> {
  const contents = Object.entries(files).map(([name, data]) => [name, Buffer.from(data).toString("base64")]);
  const dataTransfer = await page.evaluateHandle(`(() => {
    const transfer = new DataTransfer();
    for (const [name, data] of ${JSON.stringify(contents)})
      transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
    return transfer;
  })()`);
  await page.dispatchEvent(selector, "drop", { dataTransfer });
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Returns the barriers of a page for people who see it badly or not at all: each with its rule and its element. */
export async function findBarriers(page: Page): Promise<string[]> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(AXE);
  return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ": " + html.slice(0, 160))))`);
}

/** Pixels by which the page is wider than its window. */
export function overflowOf(page: Page): Promise<number> {
  return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
}
