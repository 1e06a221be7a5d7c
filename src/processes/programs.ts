import { spawn } from "node:child_process";
import { type Stats, statSync } from "node:fs";
import { resolve } from "node:path";
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

/** Why a command could not be started. */
interface StartFailure {
  message: string;
  /** As in a shell: 127 for no such command, 126 for one that cannot be run. */
  exitCode: number;
}

/** Explains the error of starting a program. */
export function startFailure(
  file: string,
  cwd: string,
  { code, message }: NodeJS.ErrnoException,
): StartFailure {
  // Without a slash the name is looked up in PATH, which finds only executable files.
  const stats = file.includes("/") ? statsOf(resolve(cwd, file)) : null;
  const cannot = (why: string) => ({ message: `${file}: cannot be run (${why})`, exitCode: 126 });
  if (stats?.isDirectory()) return cannot("it is a directory");
  if (stats !== null && code === "ENOENT") return cannot("the program in its first line does not exist");
  if (code === "EACCES") return cannot("no permission");
  const isMissing = code === "ENOENT" || code === "ENOTDIR" || file === "";
  if (isMissing) return { message: `${file || '""'}: no such command`, exitCode: 127 };
  return cannot(code ?? message);
}

function statsOf(path: string): Stats | null {
  try {
    return statSync(path);
  } catch {
    return null;
  }
}
