import { deadline } from "../../client/poll.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { formatDuration } from "../../kernel/durations.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { createServiceLocator, type Probe, probeService } from "../connect/find-service.ts";
import { flagOption, positiveDurationOption } from "../options.ts";
import { type Flag, nextCommand } from "../output/next-step.ts";

export const command: CommandDetails = {
  options: [
    { flags: "--wait", description: "wait until the service is ready" },
    { flags: "--timeout <time>", description: "with --wait: stop waiting after this time", default: "30s" },
  ],
  examples: ["imgbatch ready --wait --timeout 2m && imgbatch submit prompts.jsonl"],
  exits: ["auth", "temporary", "gone", "timeout", "interrupted", "terminated"],
  run,
};

const DEFAULT_TIMEOUT_MS = 30_000;
/** The time between two checks, in ms: short for a service on this machine, longer for a remote one. */
const LOCAL_PAUSE_MS = 250;
const REMOTE_PAUSE_MS = 2000;

/**
 * `imgbatch ready`: checks the service once, or with `--wait` until it is ready. Exits with 7 if the service is not
 * ready, 3 if it refuses the key, and 124 if the time runs out.
 */
async function run(context: CommandContext): Promise<CommandResult> {
  const { options, output, clock, global } = context;
  const command = (...words: readonly (string | Flag)[]) => nextCommand(global, ...words);
  const isPatient = flagOption(options, "wait");
  const limitMs = positiveDurationOption(options, "timeout") ?? DEFAULT_TIMEOUT_MS;
  const limit = deadline(clock, limitMs);
  const signal = AbortSignal.any([context.signal, limit.signal]);
  let last = "";
  try {
    const locate = await createServiceLocator({ ...context, signal });
    for (;;) {
      const service = await locate(signal);
      const probe: Probe = service === null ? NOT_RUNNING : await probeService(service, signal);
      if (probe.problems.length === 0 && service !== null) return ready(service.baseUrl);
      last = probe.problems.join("; ");
      if (!isPatient)
        throw new ImgbatchError("NETWORK", `Not ready: ${last}.`, {
          advice:
            service === null
              ? `start one (${command("serve")}), or name a service with --base-url; ${command("doctor")} checks the rest`
              : `${command("ready", { flag: "--wait" })}; to find the cause: ${command("doctor")}`,
        });
      output.progress(`waiting: ${last}`);
      await clock.sleep(service?.isLocal === false ? REMOTE_PAUSE_MS : LOCAL_PAUSE_MS, signal);
    }
  } catch (error) {
    if (!limit.signal.aborted || context.signal.aborted) throw error;
    const why = last === "" ? "the service did not answer" : last;
    throw new ImgbatchError("TIMEOUT", `Not ready after ${formatDuration(limitMs)}: ${why}.`, {
      advice: `${command("doctor")} checks the service; or allow more time with --timeout`,
    });
  } finally {
    limit.stop();
    output.settle();
  }
}

const NOT_RUNNING: Probe = { problems: ["no service runs on the data directory"] };

function ready(url: string): CommandResult {
  return { exitCode: EXIT_CODES.ok.code, json: { ready: true, url }, lines: [url] };
}
