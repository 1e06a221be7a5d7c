import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { readEnvironment } from "../../environment.ts";
import type { Attempt } from "../../http/http.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { configChoice } from "./config-choice.ts";
import { describeRequest } from "./describe-request.ts";
import { findRunning } from "./running-service.ts";

/** A service that was found without starting one. */
export interface FoundService {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** See `ServiceConnection`. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  isLocal: boolean;
  /** Called after each request. */
  onAttempt?: (attempt: Attempt) => void;
}

/**
 * Returns a function that finds the service of commands: the named one, else the one that runs on the data directory, or
 * null while none runs. Starts nothing. Throws `API_KEY_REQUIRED` for a named service without a key.
 */
export async function createServiceLocator(
  context: Pick<CommandContext, "global" | "options" | "cwd" | "connect" | "signal" | "output">,
): Promise<(signal: AbortSignal) => Promise<FoundService | null>> {
  const { global, cwd, output } = context;
  const onAttempt = (attempt: Attempt) => output.detail(describeRequest(attempt));
  const environment = readEnvironment();
  const typed = global.baseUrl ?? environment.baseUrl;
  const named = typed ?? (await loadUnlessDefault(configChoice(context)))?.baseUrl ?? null;
  if (named === null) {
    const dataDirectory = dataDirectoryOf(global.data, environment, cwd);
    output.detail(`data directory: ${dataDirectory}`);
    return async () => {
      const found = await findRunning(dataDirectory);
      if (found === null) return null;
      const { url: baseUrl, apiKey, confirm } = found;
      return { baseUrl, apiKey, confirm, isLocal: true, onAttempt };
    };
  }
  // Connecting to a named service only reads the address and the key. Do it once: standard input can be read once.
  const connection = await context.connect({ workers: false }, context.signal);
  return async () => ({ ...connection, onAttempt });
}
