import { access, constants, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { nearestExisting } from "../../kernel/files/nearest-existing.ts";
import type { TypedOptions } from "../command-line/option-values.ts";

/**
 * Throws `SAVE_FAILED` when a report that is asked for has no place, before anything is sent that would be paid for. A
 * directory that is not there is no mistake: it is made when the report is written. Nothing is written here.
 */
export async function requireReportPaths(options: TypedOptions, cwd: string): Promise<void> {
  for (const name of ["junit", "markdown"]) {
    const named = options[name];
    if (typeof named !== "string") continue;
    const param = `--${name}`;
    const path = resolve(cwd, named);
    try {
      await saving(path, () => requireWritable(path));
    } catch (cause) {
      if (!(cause instanceof ImgbatchError)) throw cause;
      const advice = `name another file in ${param}, or make room for this one; nothing was sent`;
      throw new ImgbatchError(cause.code, `${param}: ${cause.message}`, { cause, param, advice });
    }
  }
}

/** Throws what the system would say later. */
async function requireWritable(path: string): Promise<void> {
  const place = await nearestExisting(path);
  const isDirectory = (await stat(place)).isDirectory();
  if (place === path && isDirectory) throw systemError("EISDIR");
  if (place === path) return access(path, constants.W_OK);
  if (!isDirectory) throw systemError("ENOTDIR");
  return access(place, constants.W_OK | constants.X_OK);
}

function systemError(code: string): Error {
  return Object.assign(new Error(code), { code, syscall: "open" });
}
