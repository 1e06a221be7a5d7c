import { type Stats, statSync } from "node:fs";
import { resolve } from "node:path";

/** Why a command could not be started. */
export interface StartFailure {
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
