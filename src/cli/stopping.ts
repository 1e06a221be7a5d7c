import { cancelBatch } from "../client/change-batch.ts";
import { deadline } from "../client/poll.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { systemClock } from "../kernel/clock.ts";
import { describeCancel } from "./cancelled.ts";
import type { CommandContext } from "./command.ts";
import { nextCommand } from "./next-command.ts";
import { type ConnectedService, explainStop } from "./with-service.ts";

/** How long a cancellation may take when somebody waits for the command to end. */
const CANCEL_TIMEOUT_MS = 20_000;

/**
 * Does work that makes batches. When it is stopped, the error says what becomes of them; with `cancelOnInterrupt` an
 * interruption cancels them first.
 * Rules: CLI-10, CLI-11, CLI-34.
 */
export async function stoppable<T>(
  context: CommandContext,
  service: ConnectedService,
  cancelOnInterrupt: boolean,
  work: (context: CommandContext) => Promise<T>,
): Promise<T> {
  const ids: string[] = [];
  const output: CommandContext["output"] = {
    ...context.output,
    event: (event) => {
      if (event.event === "batch_created" || event.event === "batch_replayed") ids.push(event.batch_id);
      context.output.event(event);
    },
  };
  try {
    return await work({ ...context, output });
  } catch (error) {
    output.settle();
    if (cancelOnInterrupt && isInterruption(error) && ids.length > 0)
      throw await cancelled(context, service, ids, error);
    if (ids.length === 0 && error instanceof ImgbatchError && error.code === "TIMEOUT") {
      const advice = "run the same command again with more time in --timeout: nothing is paid twice";
      throw new ImgbatchError("TIMEOUT", "Time is up; the service has not answered with a batch yet.", {
        advice,
      });
    }
    throw explainStop(error, service.kind, ids);
  }
}

function isInterruption(error: unknown): error is ImgbatchError {
  return error instanceof ImgbatchError && (error.code === "INTERRUPTED" || error.code === "TERMINATED");
}

async function cancelled(
  { output, global }: CommandContext,
  { http }: ConnectedService,
  ids: readonly string[],
  stop: ImgbatchError,
): Promise<ImgbatchError> {
  const commands = (name: string) => ids.map((id) => nextCommand(global, name, id)).join("; ");
  output.note("interrupted: cancelling (once more to leave at once)");
  const limit = deadline(systemClock, CANCEL_TIMEOUT_MS);
  try {
    let made = 0;
    for (const id of ids) {
      const batch = await cancelBatch(http, id, limit.signal);
      output.note(describeCancel(batch));
      made += batch.successCount;
    }
    const advice =
      made > 0
        ? `${commands("download")} (fetches what was finished)`
        : "the same command with --new makes all of it again";
    return new ImgbatchError(stop.code, `Interrupted; cancelled ${ids.join(", ")}.`, { advice });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return new ImgbatchError(stop.code, `Interrupted, but not cancelled: ${why}`, {
      advice: commands("cancel"),
    });
  } finally {
    limit.stop();
  }
}
