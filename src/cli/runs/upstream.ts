import { UPSTREAM_NAMES } from "../../config/presets.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { choiceOption } from "../command-line/option-values.ts";
import type { ServiceNeeds, UpstreamChoice } from "../service/connection.ts";
import type { Target } from "./targets.ts";

/**
 * Returns the upstream of `--upstream`, else the one that the run in the directory remembers, else null. Without a
 * directory (null) nothing is remembered. Throws `DIRECTORY_CONFLICT` if the run has another one, and `CONSENT_REQUIRED`
 * if only the directory names a program.
 */
export async function chooseUpstream(
  { options }: Pick<CommandContext, "options">,
  dir: string | null,
): Promise<UpstreamChoice | null> {
  const typed = choiceOption(options, "upstream", UPSTREAM_NAMES);
  const state = dir === null ? null : await readRunState(dir);
  const remembered = dir === null || state === null ? null : upstreamOf(dir, state);
  if (typed === undefined) {
    // A stranger may have made the directory, and the program beside it.
    if (remembered?.name === "command") throw namelessProgram(dir ?? "");
    return remembered;
  }
  if (remembered !== null && remembered.name !== typed) {
    const message = `${dir} belongs to a run with the upstream ${remembered.name}, not ${typed}. Choose another directory with --output.`;
    throw new ImgbatchError("DIRECTORY_CONFLICT", message);
  }
  return { name: typed, isTyped: true };
}

function namelessProgram(dir: string): ImgbatchError {
  const message = `${dir} belongs to a run whose images a program of the working directory makes. Nothing was run.`;
  const advice = "if you trust that program, run the same command with --upstream command";
  return new ImgbatchError("CONSENT_REQUIRED", message, { advice });
}

/**
 * Returns the upstream that the runs of the targets remember, for the needs of a command. Throws `DIRECTORY_CONFLICT` if they have
 * different ones: one service cannot have them all.
 */
export function rememberedUpstream(targets: readonly Target[]): Pick<ServiceNeeds, "upstream"> {
  const found = targets.flatMap(({ run }) => (run === null ? [] : (upstreamOf(run.dir, run.state) ?? [])));
  const [first, ...others] = found;
  if (first === undefined) return {};
  const other = others.find(({ name }) => name !== first.name);
  if (other === undefined) return { upstream: first };
  const message = `These runs have different upstreams (${first.name} and ${other.name}).`;
  const advice = "run the command once for the runs of each upstream";
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

function upstreamOf(dir: string, { upstream }: RunState): UpstreamChoice | null {
  if (upstream === undefined) return null;
  const name = UPSTREAM_NAMES.find((known) => known === upstream);
  if (name !== undefined) return { name, isTyped: false };
  const message = `${dir} belongs to a run with the upstream ${JSON.stringify(upstream)}, which this version of imgbatch does not know.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message);
}
