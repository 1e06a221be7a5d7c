import { listModels } from "../../client/batches.ts";
import { createServiceHttp } from "../../client/service-http.ts";
import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { readEnvironment } from "../../environment.ts";
import type { Attempt } from "../../http/http.ts";
import { type Answer, boundedText, send } from "../../http/transport.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { CommandContext } from "../command.ts";
import { findRunning } from "./running-service.ts";
import { configChoice } from "./service-config.ts";
import { describeRequest } from "./with-service.ts";

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

/** The time limit of one request. */
const TIMEOUT_MS = 5000;
/** Far more than the longest list of problems. */
const MAX_ANSWER_BYTES = 64 * 1024;

export interface Probe {
  /** The reasons why the service is not ready; empty if it is. */
  problems: string[];
}

/**
 * Checks whether the service is ready and accepts the key. Services without the readiness endpoint count as ready.
 * Throws if the key is refused, and for every error that waiting does not solve.
 */
export async function probeService(service: FoundService, signal: AbortSignal): Promise<Probe> {
  const problems = await readinessProblems(service.baseUrl, signal);
  if (problems.length > 0) return { problems };
  const http = createServiceHttp({
    ...service,
    clock: systemClock,
    random: Math.random,
    timeoutMs: TIMEOUT_MS,
    maxRetries: 0,
  });
  try {
    await listModels(http, signal);
    return { problems: [] };
  } catch (error) {
    if (!(error instanceof ImgbatchError) || errorEntry(error.code).exit !== "temporary") throw error;
    return { problems: [error.message.replace(/\.$/, "")] };
  }
}

async function readinessProblems(baseUrl: string, signal: AbortSignal): Promise<string[]> {
  let answer: Answer;
  try {
    // A service that redirects has no readiness endpoint, so the redirect is not followed.
    answer = await send(baseUrl + routes.ready, { signal, silenceMs: TIMEOUT_MS });
  } catch {
    signal.throwIfAborted();
    return [`${baseUrl} does not answer`];
  }
  const text = (await boundedText(answer.body, MAX_ANSWER_BYTES).catch(() => "")) ?? "";
  if (answer.ok || answer.status < 500) return [];
  return namedProblems(text) ?? [`${baseUrl} answers HTTP ${answer.status}`];
}

function namedProblems(text: string): string[] | null {
  try {
    const { problems } = JSON.parse(text) as { problems?: unknown };
    return Array.isArray(problems) && problems.length > 0 ? problems.map(String) : null;
  } catch {
    return null;
  }
}
