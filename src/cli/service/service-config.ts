import { loadConfig } from "../../config/load.ts";
import { UPSTREAM_NAMES } from "../../config/presets.ts";
import type { Config } from "../../config/schema.ts";
import { VENDOR_NAMES } from "../../config/vendors.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { choiceOption, textOption } from "../command-line/option-values.ts";
import { withSimulation } from "./simulation.ts";
import { requireKeys, requireNamedAddresses } from "./upstream-keys.ts";

/**
 * Returns the configuration of a service that a command runs for others: its file with `--upstream`, `--vendor` and
 * `--simulate` over it. Throws `INVALID_CONFIG`, `USAGE`, and `API_KEY_REQUIRED` for what `requireNamedAddresses` refuses,
 * and without the keys of the upstreams. `mayLackKeys`: a service whose providers stand in a file starts without their
 * keys, and says so.
 */
export async function serviceConfig(
  { cwd, global, options }: Pick<CommandContext, "cwd" | "global" | "options">,
  { mayLackKeys }: { mayLackKeys: boolean },
): Promise<Config> {
  const upstream = choiceOption(options, "upstream", UPSTREAM_NAMES) ?? null;
  const vendor = choiceOption(options, "vendor", VENDOR_NAMES) ?? null;
  const loaded = loadConfig({ file: global.config, cwd, upstream, vendor });
  const config = withSimulation(loaded, textOption(options, "simulate"));
  if (global.config === undefined) await requireNamedAddresses(config);
  if (upstream !== null || !mayLackKeys) requireKeys(config);
  return config;
}
