import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Attempt } from "../../client/http.ts";
import { dataDirectoryOf, loadConfig, readEnvironment } from "../../config.ts";
import { credentialsSchema, DATA_FILES, serverFileSchema } from "../../contract/data-directory.ts";
import { describeAttempt } from "../attempts.ts";
import type { CommandContext } from "../command.ts";

/** A service that is asked without starting anything. */
export interface FoundService {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  isLocal: boolean;
  /** Told after each request. */
  onAttempt?: (attempt: Attempt) => void;
}

/**
 * Answers how to find the service that commands would talk to: the named one, else the one that runs on the data
 * directory, null while none does. Nothing is started. Throws `API_KEY_REQUIRED` for a named one without a key.
 * Rule: READY-1.
 */
export async function createServiceLocator(
  context: Pick<CommandContext, "global" | "cwd" | "connect" | "signal" | "output">,
): Promise<(signal: AbortSignal) => Promise<FoundService | null>> {
  const { global, cwd, output } = context;
  const onAttempt = (attempt: Attempt) => output.detail(describeAttempt(attempt));
  const environment = readEnvironment();
  const named = global.baseUrl ?? environment.baseUrl ?? loadConfig({ file: global.config, cwd }).baseUrl;
  if (named === null) {
    const dataDirectory = dataDirectoryOf(global.data, environment, cwd);
    output.detail(`data directory: ${dataDirectory}`);
    return async () => {
      const found = await findOn(dataDirectory);
      return found === null ? null : { ...found, onAttempt };
    };
  }
  // Of a named service this only reads the address and the key; a key on standard input can be read once.
  const { baseUrl, apiKey, isLocal } = await context.connect({ workers: false }, context.signal);
  return async () => ({ baseUrl, apiKey, isLocal, onAttempt });
}

async function findOn(dataDirectory: string): Promise<FoundService | null> {
  const read = async (name: string): Promise<unknown> =>
    JSON.parse(await readFile(join(dataDirectory, name), "utf8"));
  try {
    const { url } = serverFileSchema.parse(await read(DATA_FILES.server));
    const { api_key } = credentialsSchema.parse(await read(DATA_FILES.credentials));
    return { baseUrl: url, apiKey: api_key, isLocal: true };
  } catch {
    return null;
  }
}
