import { ImgbatchError } from "../../contract/errors.ts";
import type { OptionSpec } from "./option-values.ts";
import { choiceOption } from "./option-values.ts";

/** Options that every command takes. */
export interface GlobalOptions {
  json: boolean;
  quiet: boolean;
  verbose: boolean;
  color: boolean;
  progress: "auto" | "plain" | "none";
  baseUrl?: string;
  apiKeyFile?: string;
  apiKeyStdin: boolean;
  data?: string;
  config?: string;
  /** The target for the events of a run: a file, or `-` for standard output. */
  events?: string;
}

const PROGRESS = ["auto", "plain", "none"] as const;

export const JSON_OPTION: OptionSpec = {
  flags: "--json",
  description: "print one JSON document on stdout, also for an error",
};

/** Options that may stand before or after the name of any command. */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: "-q, --quiet", description: "print only errors on stderr" },
  { flags: "-v, --verbose", description: "print more: each request with its status, time and id" },
  { flags: "--no-color", description: "use no colours (also NO_COLOR)" },
  {
    flags: "--events <file>",
    description: "write events, one JSON object per line; - for standard output",
  },
  {
    flags: "--progress <kind>",
    description: "how to show progress: auto, plain or none",
    default: "auto",
    choices: PROGRESS,
  },
  {
    flags: "--base-url <url>",
    description: "the URL of the service (also IMGBATCH_BASE_URL); without it, the embedded service",
  },
  { flags: "--api-key-file <file>", description: "read the API key from a file (also IMGBATCH_API_KEY)" },
  { flags: "--api-key-stdin", description: "read the API key from standard input" },
  { flags: "--data <dir>", description: "the data directory of the embedded service (also IMGBATCH_DATA)" },
  { flags: "--config <file>", description: "the configuration file", default: "imgbatch.config.json" },
];

type Parsed = Record<string, unknown>;

/**
 * Merges the global options that were given before and after each name on the way to the command. The last one wins.
 * Throws `USAGE` for options that contradict each other.
 */
export function mergeGlobals(...given: readonly Parsed[]): GlobalOptions {
  const merged: Parsed = Object.assign({}, ...given);
  const progress = choiceOption(merged, "progress", PROGRESS) ?? "auto";
  const json = merged.json === true;
  if (json && merged.events === "-")
    throw new ImgbatchError(
      "USAGE",
      "--json and --events - both want standard output: give --events a file.",
    );
  return {
    json,
    quiet: merged.quiet === true,
    verbose: merged.verbose === true,
    color: given.every((each) => each.color !== false),
    progress,
    apiKeyStdin: merged.apiKeyStdin === true,
    ...text("baseUrl", merged),
    ...text("apiKeyFile", merged),
    ...text("data", merged),
    ...text("config", merged),
    ...text("events", merged),
  };
}

function text<K extends string>(name: K, values: Parsed): Partial<Record<K, string>> {
  const value = values[name];
  return typeof value === "string" ? ({ [name]: value } as Partial<Record<K, string>>) : {};
}
