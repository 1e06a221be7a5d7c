import type { CommandSpec, OptionSpec } from "../command.ts";
import { admin } from "./admin/table.ts";

/**
 * Every command: what it is called, what it takes, and where its work is. Importing this file must stay cheap,
 * so nothing of the work is imported here.
 */
const intervalOption: OptionSpec = {
  flags: "--interval <time>",
  description: "time between two looks at the batch (default: chosen by the service and the time passed)",
};
const timeoutOption: OptionSpec = {
  flags: "--timeout <time>",
  description: "give up waiting after this time, such as 45m",
};
const target = { name: "<id|dir>", description: "a batch id, or the output directory of a run" };
const targets = { ...target, name: "<id|dir...>" };

const submit: CommandSpec = {
  name: "submit",
  summary: "validate, submit, wait, download and verify; run again to resume or repair",
  arguments: [
    { name: "<file...>", description: "prompt files (.jsonl, .txt, .csv, .tsv), or - for standard input" },
  ],
  options: [
    { flags: "-m, --model <id>", description: "the model", default: "the first of `imgbatch models`" },
    { flags: "-n, --name <name>", description: "a name for the batch" },
    {
      flags: "-o, --output <dir>",
      description: "where the run is kept",
      default: "<stem of the first file>-images",
    },
    { flags: "--count <n>", description: "images for each prompt that does not say", default: "1" },
    { flags: "--mime-type <type>", description: "image/png, image/jpeg or image/webp", default: "image/png" },
    {
      flags: "--metadata <k=v>",
      description: "a pair to keep with the batch; may be repeated",
      repeatable: true,
    },
    { flags: "--parent <id>", description: "the batch that this one retries" },
    { flags: "-d, --detach", description: "print the batch ids and do not wait" },
    timeoutOption,
    intervalOption,
    { flags: "--max-cost <usd>", description: "refuse, before sending, a run that may cost more" },
    { flags: "--unit-cost <usd>", description: "what an image costs, where the service does not say" },
    {
      flags: "--dry-run",
      description: "check, count, estimate, and print the idempotency keys; submit nothing",
    },
    { flags: "--new", description: "generate and pay again, even when the same run was submitted before" },
    {
      flags: "--idempotency-key <key>",
      description: "use this key instead of the one made from the content",
    },
    { flags: "--zip", description: "keep the ZIP, do not unpack it" },
    {
      flags: "--allow-failures <n|p%>",
      description: "succeed with up to this many failed images",
      default: "0",
    },
  ],
  examples: [
    "imgbatch submit prompts.jsonl",
    "imgbatch submit prompts.csv --output out --max-cost 5",
    "cat prompts.jsonl | imgbatch submit - --json",
  ],
  load: () => import("./submit.ts"),
};

const status: CommandSpec = {
  name: "status",
  summary: "one look at batches; never waits",
  arguments: [targets],
  load: () => import("./status.ts"),
};

const wait: CommandSpec = {
  name: "wait",
  summary: "wait until batches have ended; the exit code tells how",
  arguments: [targets],
  options: [timeoutOption, intervalOption],
  load: () => import("./wait.ts"),
};

const download: CommandSpec = {
  name: "download",
  summary: "fetch the images of an ended batch, or one of them; resumes and verifies",
  arguments: [target],
  options: [
    { flags: "-o, --output <path>", description: "the directory; with --zip or --item, the file" },
    { flags: "--zip", description: "the ZIP itself" },
    { flags: "--item <id>", description: "one item's image" },
    { flags: "--index <n>", description: "with --item: which of its images, from 0", default: "0" },
  ],
  examples: ["imgbatch download out", "imgbatch download imgbatch_… --item cat --output cat.png"],
  load: () => import("./download.ts"),
};

const models: CommandSpec = {
  name: "models",
  summary: "the models that this key can make batches with, and what an image costs",
  options: [{ flags: "--realtime", description: "the models of `imgbatch generate` instead" }],
  load: () => import("./models.ts"),
};

const generate: CommandSpec = {
  name: "generate",
  summary: "make an image at once, or many of a file: each is a request of its own",
  arguments: [{ name: "[prompt]", description: "what the image shows, or - for standard input" }],
  options: [
    {
      flags: "-o, --output <path>",
      description:
        "the file, or a directory for a name made from the prompt (default: here); with --file, the directory of the run",
    },
    {
      flags: "-i, --image <file>",
      description:
        "an image to edit or to go by (PNG, JPEG, WebP); may be repeated; with --file, for prompts that name none",
      repeatable: true,
    },
    {
      flags: "-m, --model <id>",
      description: "the model",
      default: "the first of `imgbatch models --realtime`",
    },
    { flags: "--aspect-ratio <w:h>", description: "such as 1:1, 3:2 or 16:9", default: "the model decides" },
    { flags: "--size <tier>", description: "1K, 2K or 4K", default: "1K" },
    { flags: "--force", description: "replace the file that --output names" },
    {
      flags: "--file <file>",
      description: "a prompt file (.jsonl, .txt, .csv, .tsv, -): make all of its images",
    },
    { flags: "-j, --jobs <n>", description: "with --file: requests under way at once", default: "4" },
    { flags: "--rpm <n>", description: "with --file: at most this many requests in any minute" },
    {
      flags: "--count <n>",
      description: "with --file: images for each prompt that does not say",
      default: "1",
    },
    { flags: "--retries <n>", description: "further attempts for what may pass, 0 to 3", default: "3" },
    {
      flags: "--timeout <time>",
      description:
        "give up everything after this time; one attempt gets 120 s (1K), 180 s (2K) or 300 s (4K)",
    },
  ],
  examples: [
    'imgbatch generate "a red fox in the snow" -o fox.png',
    'imgbatch generate "the same in autumn" --image fox.png -o autumn.png --aspect-ratio 16:9 --size 2K',
    "imgbatch generate --file prompts.jsonl -o out -j 8 --rpm 60",
  ],
  notes: [
    "The ending of the file follows the real type of the image: when a JPEG comes for fox.png, it is saved as fox.jpg,",
    "which is said and printed. A file that is there is not replaced without --force, and then nothing is sent.",
    "Requests have no idempotency key: running a single one again makes and bills another image, and an attempt whose",
    "answer was lost may be billed too. With --file, the same command again makes only what is missing. For large",
    "numbers use `imgbatch submit`, which costs less and never pays twice.",
  ],
  paysAgain: true,
  load: () => import("./generate.ts"),
};

const serve: CommandSpec = {
  name: "serve",
  summary: "run the whole service on this machine until it is stopped",
  options: [
    { flags: "--port <n>", description: "the port; 0 for a free one", default: "8787" },
    { flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" },
    { flags: "--ephemeral", description: "use a data directory that is removed at the end" },
    { flags: "--ready-file <file>", description: "write URL, process id and data directory here when ready" },
    {
      flags: "--simulate <what>",
      description: "latency=2s,fail=0.1,seed=7: make the drawings slow or faulty",
    },
    { flags: "--grace <time>", description: "time for running items when stopping", default: "10s" },
    { flags: "--log-level <level>", description: "debug, info, warn or error", default: "info" },
  ],
  json: false,
  load: () => import("./serve.ts"),
};

export const COMMANDS: readonly CommandSpec[] = [
  submit,
  generate,
  status,
  wait,
  download,
  models,
  serve,
  admin,
];
