import { spawn, spawnSync } from "node:child_process";
import { tempDir } from "./temp-dir.ts";

/** The name under which a Chromium is installed here; null where there is none. */
export const CHROMIUM =
  ["chromium", "chromium-browser", "google-chrome"].find(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0,
  ) ?? null;

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--virtual-time-budget=3000",
];

/** Opens a page from disk, in a profile of its own, and answers its document after its script has run. */
export async function dumpDom(page: string, size: { width: number; height: number }): Promise<string> {
  const profile = await tempDir();
  const window = `--window-size=${size.width},${size.height}`;
  const args = [...FLAGS, window, `--user-data-dir=${profile}`, "--dump-dom", `file://${page}`];
  const child = spawn(CHROMIUM ?? "chromium", args, { stdio: ["ignore", "pipe", "ignore"] });
  let dom = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    dom += text;
  });
  await new Promise((done) => child.once("close", done));
  return dom;
}
