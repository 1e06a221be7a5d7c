import { spawn } from "node:child_process";

const OPENERS: Partial<Record<NodeJS.Platform, string>> = { darwin: "open", win32: "explorer" };

/**
 * Shows a folder in the file manager of the desktop. Returns a message for the person: without a file manager it names
 * the path of the folder.
 */
export async function openFolder(path: string): Promise<string> {
  const opener = OPENERS[process.platform] ?? "xdg-open";
  const started = await new Promise<boolean>((resolve) => {
    const child = spawn(opener, [path], { stdio: "ignore", detached: true });
    child.once("error", () => resolve(false));
    child.once("spawn", () => {
      child.unref();
      resolve(true);
    });
  });
  return started ? `Opened ${path}.` : `The files are in ${path}.`;
}
