import { access, constants, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { nearestExisting } from "../../kernel/files/nearest-existing.ts";
import { pathOption, type TypedOptions } from "../command-line/option-values.ts";

/**
 * Throws `SAVE_FAILED` if a requested report cannot be written, before any paid request is sent. A missing directory is
 * no error: writing the report creates it. Throws `USAGE` for `--open` without a contact sheet. This function writes nothing.
 */
export async function requireReportPaths(options: TypedOptions, cwd: string): Promise<void> {
  for (const flag of ["--no-gallery", "--detach"] as const) {
    const isTyped = flag === "--detach" ? options.detach === true : options.gallery === false;
    if (options.open !== true || !isTyped) continue;
    const message = `--open and ${flag}: ${flag} writes no contact sheet; use one of them.`;
    throw new ImgbatchError("USAGE", message, { param: "--open" });
  }
  for (const name of ["junit", "markdown"]) {
    const named = pathOption(options, name);
    if (named === undefined) continue;
    const param = `--${name}`;
    const path = resolve(cwd, named);
    try {
      await saving(path, () => requireWritable(path));
    } catch (cause) {
      if (!(cause instanceof ImgbatchError)) throw cause;
      const advice = `name another file in ${param}, or make this path writable; nothing was sent`;
      throw new ImgbatchError(cause.code, `${param}: ${cause.message}`, { cause, param, advice });
    }
  }
}

/** Throws the system error that writing would throw later. */
async function requireWritable(path: string): Promise<void> {
  const existing = await nearestExisting(path);
  const isDirectory = (await stat(existing)).isDirectory();
  if (existing === path && isDirectory) throw systemError("EISDIR");
  if (existing === path) return access(path, constants.W_OK);
  if (!isDirectory) throw systemError("ENOTDIR");
  return access(existing, constants.W_OK | constants.X_OK);
}

function systemError(code: string): Error {
  return Object.assign(new Error(code), { code, syscall: "open" });
}
