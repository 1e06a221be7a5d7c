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
  /** Where the events of a run go: a file, or `-` for standard output. */
  events?: string;
}

const PROGRESS = ["auto", "plain", "none"] as const;

export const JSON_OPTION: OptionSpec = {
  flags: "--json",
  description: "one JSON document on stdout, errors included",
};

/** Options that stand before or after the name of any command. */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: "-q, --quiet", description: "say nothing but errors" },
  { flags: "-v, --verbose", description: "say more: each request with its status, time and id" },
  { flags: "--no-color", description: "no colours (also NO_COLOR)" },
  {
    flags: "--events <file>",
    description: "write what happens, one JSON object a line; - for standard output",
  },
  { flags: "--progress <kind>", description: "auto, plain or none", default: "auto", choices: PROGRESS },
  {
    flags: "--base-url <url>",
    description: "the service (also IMGBATCH_BASE_URL); without one, the embedded service",
  },
  { flags: "--api-key-file <file>", description: "read the API key from a file (also IMGBATCH_API_KEY)" },
  { flags: "--api-key-stdin", description: "read the API key from standard input" },
  { flags: "--data <dir>", description: "data directory of the embedded service (also IMGBATCH_DATA)" },
  { flags: "--config <file>", description: "configuration file", default: "imgbatch.config.json" },
];

type Parsed = Record<string, unknown>;

/**
 * Puts together what was said before and after each name on the way to the command; the last word counts. Throws `USAGE`
 * for what does not go together.
 */
export function mergeGlobals(...said: readonly Parsed[]): GlobalOptions {
  const merged: Parsed = Object.assign({}, ...said);
  const progress = choiceOption(merged, "progress", "--progress", PROGRESS) ?? "auto";
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
    color: said.every((each) => each.color !== false),
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
