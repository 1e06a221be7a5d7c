import { loadConfig } from "../../config/load.ts";
import type { Config } from "../../config/schema.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { textOption } from "../command-line/option-values.ts";
import { configChoice } from "./config-choice.ts";
import { withSimulation } from "./simulation.ts";
import { requireKeys } from "./upstream-keys.ts";

/**
 * Returns the configuration of a service that a command runs for others: its file with `--upstream`, `--vendor` and
 * `--simulate` over it. Throws `USAGE`, the errors of `loadConfig`, and `API_KEY_REQUIRED` without the keys of the
 * upstreams. `mayLackKeys`: a service whose providers stand in a file starts without their keys, and says so.
 */
export function serviceConfig(
  context: Pick<CommandContext, "cwd" | "global" | "options">,
  { mayLackKeys }: { mayLackKeys: boolean },
): Config {
  const choice = configChoice(context);
  const config = withSimulation(loadConfig(choice), textOption(context.options, "simulate"));
  if (choice.upstream !== null || !mayLackKeys) requireKeys(config);
  return config;
}
