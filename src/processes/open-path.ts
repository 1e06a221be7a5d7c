import { spawn } from "node:child_process";
import { hasDisplay } from "../environment.ts";

const OPENERS: Partial<Record<NodeJS.Platform, string>> = { darwin: "open", win32: "explorer" };
/** An opener that still runs then has shown the path. */
const PATIENCE_MS = 1500;

/**
 * Opens a file or a folder with the program that the desktop has for it. Returns false if it cannot: there is no desktop,
 * no opener, or no program. `path` must be absolute.
 */
export async function openPath(path: string, platform = process.platform): Promise<boolean> {
  const opener = OPENERS[platform];
  // Without a display, xdg-open would start a browser for text, which needs this terminal.
  if (opener === undefined && !hasDisplay()) return false;
  return new Promise((resolve) => {
    const child = spawn(opener ?? "xdg-open", [path], { stdio: "ignore", detached: true });
    const timer = setTimeout(() => resolve(true), PATIENCE_MS);
    const end = (isOpen: boolean) => {
      clearTimeout(timer);
      resolve(isOpen);
    };
    child.once("error", () => end(false));
    // The Explorer exits with 1 even if it has opened the path.
    child.once("exit", (code) => end(code === 0 || platform === "win32"));
    child.unref();
  });
}
