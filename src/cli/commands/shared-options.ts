import { VENDOR_NAMES } from "../../config/paths.ts";
import type { ExitName } from "../../contract/errors.ts";
import { UNKNOWN_OUTCOMES } from "../../contract/limits.ts";
import { FORMAT_NAMES } from "../../prompts/lines.ts";
import { UPSTREAM_NAMES } from "../../providers/catalogue/catalogue.ts";
import type { Allowance } from "../../runs/standing.ts";
import {
  choice,
  flag,
  type Option,
  parsed,
  path,
  positiveDuration,
  text,
  usd,
  type Values,
  whole,
} from "../options.ts";

const reports = { group: "reports" } as const;

/** The reports of a run, for people and CI systems. `writeRunReports` makes them. */
export const reportOptions = {
  junit: path({
    ...reports,
    flags: "--junit <file>",
    description: "write JUnit XML with a test case for each image",
  }),
  markdown: path({
    ...reports,
    flags: "--markdown <file>",
    description: "write a Markdown summary, failures first",
  }),
  gallery: flag({
    ...reports,
    flags: "--gallery",
    description: "write index.html, the contact sheet (default)",
  }),
  noGallery: flag({ ...reports, flags: "--no-gallery", description: "do not write index.html" }),
  open: flag({
    ...reports,
    flags: "--open",
    description: "open the contact sheet at the end; without a desktop, print its path",
  }),
};

const upstreams = `${UPSTREAM_NAMES.slice(0, -1).join(", ")} or ${UPSTREAM_NAMES.at(-1)}`;
/** Where real images come from. */
export const upstreamOption = text({
  flags: "--upstream <name>",
  description: `the upstream that makes the images: a provider of the configuration file; if that has none, ${upstreams}`,
  group: "service",
  choices: UPSTREAM_NAMES,
});

export const modelOption = text({
  flags: "-m, --model <id>",
  description: "the model",
  group: "picture",
});

export const dryRunOption = flag({
  flags: "--dry-run",
  description: "count the images and estimate the cost; submit nothing",
  group: "money",
});

export const vendorOption = choice({
  flags: "--vendor <name>",
  description: "serve this vendor's own client libraries, with its model ids and key header: google, openai",
  choices: VENDOR_NAMES,
});

const MOST_PORT = 65_535;

/** Where a service listens. */
export const addressOptions = {
  port: whole({
    flags: "--port <n>",
    description: "the port to listen on; 0 for a free one",
    default: "8787",
    min: 0,
    max: MOST_PORT,
  }),
  host: text({ flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" }),
};

export const simulateOption = text({
  flags: "--simulate <spec>",
  description: "slow down or fail drawings, for example latency=2s,fail=0.1,seed=7",
});

/** What a service logs; `usual` is what it logs without the option. */
export function logLevelOption<const T extends string>(choices: readonly T[], usual: T) {
  const description = "debug, info, warn or error";
  return choice({ flags: "--log-level <level>", description, default: usual, choices });
}

/** Where the data of a service is: see `storageOf`. */
export const storageOptions = {
  database: text({
    flags: "--database <place>",
    description: "sqlite, or postgres://host/database without a password (also IMGBATCH_DATABASE_URL)",
    default: "sqlite",
  }),
  blobs: text({
    flags: "--blobs <place>",
    description: "files, or s3://bucket/prefix",
    default: "files",
  }),
  s3Endpoint: text({
    flags: "--s3-endpoint <url>",
    description: "the URL of the S3 server of the bucket",
    default: "Amazon's, in the region",
  }),
  s3Region: text({
    flags: "--s3-region <name>",
    description: "the region of the bucket",
    default: "us-east-1",
  }),
};

export const target = {
  name: "<id|dir>",
  description: "a batch id, or the output directory of a run",
};
export const targets = { ...target, name: "<id|dir...>" };

/** How long a command waits for batches, and how often it polls them. */
export const waitOptions = {
  timeoutMs: positiveDuration({
    flags: "--timeout <time>",
    description: "stop waiting after this time, such as 45m; the batch goes on",
    group: "waiting",
  }),
  intervalMs: positiveDuration({
    flags: "--interval <time>",
    description: "time between two polls of a batch; at least 10s for a remote service",
    group: "waiting",
    default: "chosen from the service's answers and the time passed",
  }),
};

export const formatOption = choice({
  flags: "--format <name>",
  description: "the format of all prompt files: jsonl, txt, csv or tsv",
  group: "prompts",
  default: "by the ending of each; jsonl for standard input",
  choices: FORMAT_NAMES,
});

const MOST_CONCURRENCY = 256;

/** How many images are made at once by the service inside imgbatch. */
export const concurrencyOption = whole({
  flags: "-j, --concurrency <n>",
  description:
    "how many images are made at once by the service inside imgbatch; a number in the configuration wins",
  group: "service",
  default: "4, or what the upstream's preset says",
  min: 1,
  max: MOST_CONCURRENCY,
});

/** What images may cost, and what an image costs whose price is not known. */
export const moneyOptions = {
  maxCostMicroUsd: usd({
    flags: "--max-cost <usd>",
    description: "send nothing that may cost more; with a paid upstream: agree to pay up to this",
    group: "money",
  }),
  unitCostMicroUsd: usd({
    flags: "--unit-cost <usd>",
    description: "price of an image, if the service does not publish it, or the model has none here",
    group: "money",
  }),
  unknownOutcome: choice({
    flags: "--unknown <rule>",
    description:
      "when the answer to a paid request was lost: stop asks nobody again until `retry --include-lost`; once sends one more request, and marks the image",
    group: "money",
    default: "stop, or limits.unknownOutcome of the configuration",
    choices: UNKNOWN_OUTCOMES,
  }),
};

/** A program of one's own that decides about pictures. `readJudge` reads these options. */
export const judgeOptions = {
  judge: text({
    flags: "--judge <command>",
    description:
      'let this program decide about each picture without a verdict, such as \'node judge.mjs\': it reads a JSON line, and prints {"verdict": "keep", "score": 0.8, "note": ""}',
    group: "reports",
  }),
  judgeTimeoutMs: positiveDuration({
    flags: "--judge-timeout <time>",
    description: "how long it may take for a picture",
    default: "1m",
    group: "reports",
  }),
  isBest: flag({
    flags: "--best",
    description: "of several images of a prompt, choose the one with the judge's highest score",
    group: "reports",
  }),
};

/** The options of every command that sends batches and waits for them. */
export const runOptions = {
  concurrency: concurrencyOption,
  ...waitOptions,
  ...moneyOptions,
  allowance: parsed(
    {
      flags: "--allow-failures <n|p%>",
      description: "exit 0 with up to this many failed images",
      group: "waiting",
      default: "0",
    },
    "write a number or a share such as 5%",
    parseAllowance,
  ),
  cancelOnInterrupt: flag({
    flags: "--cancel-on-interrupt",
    description: "cancel the batches when this command is interrupted",
    group: "waiting",
  }),
  ...reportOptions,
};

/** Reads `3` or `5%`; null when it is neither. */
function parseAllowance(typed: string): Allowance | null {
  const [, digits, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(typed.trim()) ?? [];
  const value = Number(digits);
  if (digits === undefined || (percent === "%" ? value > 100 : !Number.isInteger(value))) return null;
  return percent === "%" ? { share: value / 100 } : { count: value };
}

type SharedTable = typeof reportOptions &
  typeof judgeOptions &
  typeof storageOptions &
  typeof moneyOptions &
  typeof addressOptions & {
    upstream: typeof upstreamOption;
    vendor: typeof vendorOption;
    model: typeof modelOption;
    concurrency: typeof concurrencyOption;
    simulate: typeof simulateOption;
    /** The prompt file of `generate`. */
    promptFile: Option<string | undefined>;
    detach: Option<boolean>;
    force: Option<boolean>;
    isStrict: Option<boolean>;
    replay: Option<string | undefined>;
  };

/**
 * The options that not only the `run` of a command reads, but also its connection to a service and its reports. In a command
 * without such an option it is undefined.
 */
export type SharedOptions = { readonly [K in keyof SharedTable]?: Values<SharedTable>[K] | undefined };

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
