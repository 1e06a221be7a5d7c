import { VENDOR_NAMES } from "../../config/paths.ts";
import type { ExitName } from "../../contract/errors.ts";
import { UNKNOWN_OUTCOMES } from "../../contract/limits.ts";
import { FORMAT_NAMES } from "../../prompts/lines.ts";
import { UPSTREAM_NAMES } from "../../providers/catalogue/catalogue.ts";
import type { Allowance } from "../../runs/standing.ts";
import {
  concurrencyOf,
  flagOption,
  type OptionSpec,
  positiveDurationOption,
  readOption,
  type TypedOptions,
  usdOption,
} from "../options.ts";

/** The reports of a run, for people and CI systems. `writeRunReports` reads these options. */
export const reportOptions: readonly OptionSpec[] = [
  { flags: "--junit <file>", description: "write JUnit XML with a test case for each image" },
  { flags: "--markdown <file>", description: "write a Markdown summary, failures first" },
  { flags: "--gallery", description: "write index.html, the contact sheet (default)" },
  { flags: "--no-gallery", description: "do not write index.html" },
  { flags: "--open", description: "open the contact sheet at the end; without a desktop, print its path" },
];

const upstreams = `${UPSTREAM_NAMES.slice(0, -1).join(", ")} or ${UPSTREAM_NAMES.at(-1)}`;
/** Where real images come from. */
export const upstreamOption: OptionSpec = {
  flags: "--upstream <name>",
  description: `the upstream that makes the images: a provider of the configuration file; if that has none, ${upstreams}`,
  choices: UPSTREAM_NAMES,
};

export const vendorOption: OptionSpec = {
  flags: "--vendor <name>",
  description: "serve this vendor's own client libraries, with its model ids and key header: google, openai",
  choices: VENDOR_NAMES,
};

/** Where the data of a service is. `storageOf` reads these options. */
export const storageOptions: readonly OptionSpec[] = [
  {
    flags: "--database <place>",
    description: "sqlite, or postgres://host/database without a password (also IMGBATCH_DATABASE_URL)",
    default: "sqlite",
  },
  { flags: "--blobs <place>", description: "files, or s3://bucket/prefix", default: "files" },
  {
    flags: "--s3-endpoint <url>",
    description: "the URL of the S3 server of the bucket",
    default: "Amazon's, in the region",
  },
  { flags: "--s3-region <name>", description: "the region of the bucket", default: "us-east-1" },
];

export const target = {
  name: "<id|dir>",
  description: "a batch id, or the output directory of a run",
};
export const targets = { ...target, name: "<id|dir...>" };

export const intervalOption: OptionSpec = {
  flags: "--interval <time>",
  description: "time between two polls of a batch; at least 10s for a remote service",
  default: "chosen from the service's answers and the time passed",
};
export const timeoutOption: OptionSpec = {
  flags: "--timeout <time>",
  description: "stop waiting after this time, such as 45m; the batch goes on",
};
export const formatOption: OptionSpec = {
  flags: "--format <name>",
  description: "the format of all prompt files: jsonl, txt, csv or tsv",
  default: "by the ending of each; jsonl for standard input",
  choices: FORMAT_NAMES,
};
export const maxCostOption: OptionSpec = {
  flags: "--max-cost <usd>",
  description: "send nothing that may cost more; with a paid upstream: agree to pay up to this",
};
export const unitCostOption: OptionSpec = {
  flags: "--unit-cost <usd>",
  description: "price of an image, if the service does not publish it, or the model has none here",
};
export const unknownOption: OptionSpec = {
  flags: "--unknown <rule>",
  description:
    "when the answer to a paid request was lost: stop asks nobody again until `retry --include-lost`; once sends one more request, and marks the image",
  default: "stop, or limits.unknownOutcome of the configuration",
  choices: UNKNOWN_OUTCOMES,
};
/** The options that `submit` and `retry` share. */
export const runOptions: readonly OptionSpec[] = [
  {
    flags: "-j, --concurrency <n>",
    description:
      "how many images are made at once by the service inside imgbatch; a number in the configuration wins",
    default: "4, or what the upstream's preset says",
  },
  timeoutOption,
  intervalOption,
  maxCostOption,
  unitCostOption,
  unknownOption,
  {
    flags: "--allow-failures <n|p%>",
    description: "exit 0 with up to this many failed images",
    default: "0",
  },
  { flags: "--cancel-on-interrupt", description: "cancel the batches when this command is interrupted" },
  ...reportOptions,
];

/** Reads `runOptions`. Throws `USAGE` for the first one that has a wrong value. */
export function readRunOptions(options: TypedOptions) {
  const advice = "write a number or a share such as 5%";
  return {
    /** How many images may fail before the exit code reports a failure. */
    allowance: readOption(options, "allowFailures", advice, parseAllowance) ?? { count: 0 },
    timeoutMs: positiveDurationOption(options, "timeout"),
    intervalMs: positiveDurationOption(options, "interval"),
    concurrency: concurrencyOf(options),
    maxCostMicroUsd: usdOption(options, "maxCost"),
    unitCostMicroUsd: usdOption(options, "unitCost"),
    cancelOnInterrupt: flagOption(options, "cancelOnInterrupt"),
  };
}

/** Reads `3` or `5%`; null when it is neither. */
function parseAllowance(text: string): Allowance | null {
  const [, digits, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim()) ?? [];
  const value = Number(digits);
  if (digits === undefined || (percent === "%" ? value > 100 : !Number.isInteger(value))) return null;
  return percent === "%" ? { share: value / 100 } : { count: value };
}

/** The exits of a command that sends requests to the service. */
export const asking: readonly ExitName[] = [
  "auth",
  "conflict",
  "temporary",
  "gone",
  "interrupted",
  "terminated",
];
/** The exits of a command that waits for batches to end. */
export const waiting: readonly ExitName[] = [...asking, "someFailed", "noImages", "timeout"];
/** The exits of a command that makes images. */
export const running: readonly ExitName[] = [...waiting, "money", "saving"];
