import { listModels } from "../../client/models.ts";
import { deadline } from "../../client/poll.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { type Answer, boundedText, send } from "../../http/transport.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { createServiceLocator, httpTo } from "../connect/connect.ts";
import type { ReachableService } from "../connect/connection.ts";
import * as option from "../options.ts";
import { type Flag, nextCommand } from "../output/next-step.ts";

const options = {
  waits: option.flag({ flags: "--wait", description: "wait until the service is ready" }),
  timeoutMs: option.positiveDuration({
    flags: "--timeout <time>",
    description: "with --wait: stop waiting after this time",
    default: "30s",
  }),
};

export const command = defineCommand({
  options,
  examples: ["imgbatch ready --wait --timeout 2m && imgbatch submit prompts.jsonl"],
  exits: ["auth", "temporary", "gone", "timeout", "interrupted", "terminated"],
  run,
});

const NOT_RUNNING = "no service runs on the data directory";
const DEFAULT_TIMEOUT_MS = 30_000;
/** The time between two checks, in ms: short for a service on this machine, longer for a remote one. */
const LOCAL_PAUSE_MS = 250;
const REMOTE_PAUSE_MS = 2000;

/**
 * `imgbatch ready`: checks the service once, or with `--wait` until it is ready. Exits with 7 if the service is not
 * ready, 3 if it refuses the key, and 124 if the time runs out.
 */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { output, clock, global } = context;
  const { waits, timeoutMs = DEFAULT_TIMEOUT_MS } = context.options;
  const command = (...words: readonly (string | Flag)[]) => nextCommand(global, ...words);
  const limit = deadline(clock, timeoutMs);
  const signal = AbortSignal.any([context.signal, limit.signal]);
  let last = "";
  try {
    const locate = await createServiceLocator({ ...context, signal });
    for (;;) {
      const service = await locate();
      const problems = service === null ? [NOT_RUNNING] : await problemsOf(service, context, signal);
      if (problems.length === 0 && service !== null) return ready(service.baseUrl);
      last = problems.join("; ");
      if (!waits)
        throw new ImgbatchError("NETWORK", `Not ready: ${last}.`, {
          advice:
            service === null
              ? `start one (${command("serve")}), or name a service with --base-url; ${command("doctor")} checks the rest`
              : `to find the cause: ${command("doctor")}\n${command("ready", { flag: "--wait" })}`,
        });
      output.progress(`waiting: ${last}`);
      await clock.sleep(service?.isLocal === false ? REMOTE_PAUSE_MS : LOCAL_PAUSE_MS, signal);
    }
  } catch (error) {
    if (!limit.signal.aborted || context.signal.aborted) throw error;
    const why = last === "" ? "the service did not answer" : last;
    throw new ImgbatchError("TIMEOUT", `Not ready after ${formatDuration(timeoutMs)}: ${why}.`, {
      advice: `${command("doctor")} checks the service; or allow more time with --timeout`,
    });
  } finally {
    limit.stop();
    output.settle();
  }
}

function ready(url: string): CommandResult {
  return { json: { ready: true, url }, lines: [url] };
}

/** The time limit of one request. */
const TIMEOUT_MS = 5000;
/** Far more than the longest list of problems. */
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Returns the reasons why a service is not ready; none if it is, and accepts the key. Services without the readiness endpoint
 * count as ready. Throws if the key is refused, and for every error that waiting does not solve.
 */
export async function problemsOf(
  service: ReachableService,
  context: Pick<CommandContext, "output" | "clock">,
  signal: AbortSignal,
): Promise<string[]> {
  const problems = await readinessProblems(service.baseUrl, signal);
  if (problems.length > 0) return problems;
  try {
    await listModels(httpTo(service, context, { timeoutMs: TIMEOUT_MS, maxRetries: 0 }), signal);
    return [];
  } catch (error) {
    if (!(error instanceof ImgbatchError) || errorEntry(error.code).exit !== "temporary") throw error;
    return [error.message.replace(/\.$/, "")];
  }
}

async function readinessProblems(baseUrl: string, signal: AbortSignal): Promise<string[]> {
  let answer: Answer;
  try {
    // A service that redirects has no readiness endpoint, so the redirect is not followed.
    answer = await send(`${baseUrl}${routes.ready}?for=work`, { signal, silenceMs: TIMEOUT_MS });
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
