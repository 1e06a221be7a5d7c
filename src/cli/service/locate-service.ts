import { dataDirectoryOf, loadConfig } from "../../config/load.ts";
import { readEnvironment } from "../../environment.ts";
import type { Attempt } from "../../http/http.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { describeRequest } from "./describe-request.ts";
import { findRunning } from "./running-service.ts";

/** A service that is asked without starting anything. */
export interface FoundService {
  /** Without a trailing slash. */
  baseUrl: string;
  apiKey: string;
  /** As of a `ServiceConnection`. */
  confirm?: (signal: AbortSignal) => Promise<void>;
  isLocal: boolean;
  /** Told after each request. */
  onAttempt?: (attempt: Attempt) => void;
}

/**
 * Answers how to find the service that commands would talk to: the named one, else the one that runs on the data
 * directory, null while none does. Nothing is started. Throws `API_KEY_REQUIRED` for a named one without a key.
 */
export async function createServiceLocator(
  context: Pick<CommandContext, "global" | "cwd" | "connect" | "signal" | "output">,
): Promise<(signal: AbortSignal) => Promise<FoundService | null>> {
  const { global, cwd, output } = context;
  const onAttempt = (attempt: Attempt) => output.detail(describeRequest(attempt));
  const environment = readEnvironment();
  const named = global.baseUrl ?? environment.baseUrl ?? loadConfig({ file: global.config, cwd }).baseUrl;
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
  // Of a named service this only reads the address and the key; a key on standard input can be read once.
  const connection = await context.connect({ workers: false }, context.signal);
  return async () => ({ ...connection, onAttempt });
}
