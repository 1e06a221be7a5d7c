import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { agreementsFile } from "../../config/paths.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { writeFileDurably } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";

/**
 * Throws `API_KEY_REQUIRED` unless the user has agreed that keys go to this base URL. Call it for an address that only the
 * configuration file of the working directory names: a stranger may have written that file.
 */
export async function requireAgreed(baseUrl: string): Promise<void> {
  if ((await readAgreed()).includes(baseUrl)) return;
  const message = `No API key is sent to ${baseUrl}: only the imgbatch.config.json of this directory names it.`;
  const advice = `if you know this address, agree to it once: imgbatch doctor --base-url ${baseUrl} (in CI: set IMGBATCH_BASE_URL=${baseUrl})`;
  throw new ImgbatchError("API_KEY_REQUIRED", message, { advice });
}

/** Stores the user's agreement that keys may go to a base URL. Returns the path of the file. Throws system errors. */
export async function agreeTo(baseUrl: string): Promise<string> {
  const path = agreementsFile();
  const agreed = new Set([...(await readAgreed()), baseUrl]);
  await makeDirectory(dirname(path), 0o700);
  await writeFileDurably(path, `${JSON.stringify([...agreed], null, 2)}\n`, { mode: 0o600 });
  return path;
}

/** The agreed addresses; none if the file is missing or damaged. */
async function readAgreed(): Promise<string[]> {
  try {
    const agreed: unknown = JSON.parse(await readFile(agreementsFile(), "utf8"));
    return Array.isArray(agreed) && agreed.every((each) => typeof each === "string") ? agreed : [];
  } catch {
    return [];
  }
}
