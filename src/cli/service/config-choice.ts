import type { ConfigChoice } from "../../config/paths.ts";
import { UPSTREAM_NAMES } from "../../config/presets.ts";
import { VENDOR_NAMES } from "../../config/vendors.ts";
import { readEnvironment, readStorageEnvironment } from "../../environment.ts";
import type { CommandContext } from "../command-line/command-context.ts";
import { choiceOption, textOption } from "../command-line/option-values.ts";

/** Returns the configuration that a command line asks for. Throws `USAGE` for an unknown upstream or vendor. */
export function configChoice({
  global,
  options,
  cwd,
}: Pick<CommandContext, "global" | "options" | "cwd">): ConfigChoice {
  const typed = {
    baseUrl: global.baseUrl ?? readEnvironment().baseUrl,
    "storage.database": textOption(options, "database") ?? readStorageEnvironment().databaseUrl,
    "storage.blobs": textOption(options, "blobs"),
  };
  return {
    file: global.config,
    cwd,
    upstream: choiceOption(options, "upstream", UPSTREAM_NAMES) ?? null,
    vendor: choiceOption(options, "vendor", VENDOR_NAMES) ?? null,
    replaced: Object.entries(typed).flatMap(([field, value]) => (value === undefined ? [] : [field])),
  };
}
