import { spawnSync } from "node:child_process";

/** The name under which a Chromium is installed here; null where there is none. */
export const CHROMIUM =
  ["chromium", "chromium-browser", "google-chrome"].find(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0,
  ) ?? null;
