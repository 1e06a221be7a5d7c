import type { CommandSpec } from "../command.ts";
import { reportOptions } from "./pipelines.ts";
import { intervalOption, running, runOptions, target, targets, timeoutOption, waiting } from "./shared.ts";

export const submit: CommandSpec = {
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
    { flags: "--max-batch <n>", description: "at most this many images in a batch", default: "200" },
    { flags: "-d, --detach", description: "print the batch ids and do not wait" },
    ...runOptions,
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
  ],
  examples: [
    "imgbatch submit prompts.jsonl",
    "imgbatch submit prompts.csv --output out --max-cost 5",
    "cat prompts.jsonl | imgbatch submit - --json",
    "imgbatch submit prompts.jsonl && echo green || echo red",
  ],
  exits: running,
  load: () => import("../commands/submit.ts"),
};

export const retry: CommandSpec = {
  name: "retry",
  summary: "make the failed images of a run anew, into the same directory; run again to resume",
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options: [
    {
      flags: "--include-refused",
      description: "also what was refused for its prompt (SAFETY_BLOCKED, INVALID_ARGUMENT, a policy)",
    },
    {
      flags: "--include-lost",
      description: "also what was made and paid, but cannot be fetched any more; paid again",
    },
    { flags: "--dry-run", description: "count and estimate; submit nothing" },
    ...runOptions,
  ],
  examples: ["imgbatch retry prompts-images", "imgbatch retry prompts-images --max-cost 1"],
  exits: running,
  load: () => import("../commands/retry.ts"),
};

export const wait: CommandSpec = {
  name: "wait",
  summary: "wait until batches have ended; the exit code tells how",
  arguments: [targets],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch wait prompts-images --timeout 45m"],
  exits: [...waiting, "saving"],
  load: () => import("../commands/wait.ts"),
};

export const watch: CommandSpec = {
  name: "watch",
  summary: "the same, and show how far they are; without an id, all that run",
  arguments: [{ ...targets, name: "[id|dir...]" }],
  options: [timeoutOption, intervalOption],
  examples: ["imgbatch watch", "imgbatch watch prompts-images"],
  exits: [...waiting, "saving"],
  load: () => import("../commands/watch.ts"),
};

export const download: CommandSpec = {
  name: "download",
  summary: "fetch the images of an ended batch, or one of them; resumes and verifies",
  arguments: [target],
  options: [
    { flags: "-o, --output <path>", description: "the directory; with --zip or --item, the file" },
    { flags: "--zip", description: "the ZIP itself" },
    { flags: "--item <id>", description: "one item's image" },
    { flags: "--index <n>", description: "with --item: which of its images, from 0", default: "0" },
    { flags: "--force", description: "with --zip or --item: replace a file of other content" },
    ...reportOptions,
  ],
  examples: ["imgbatch download out", "imgbatch download imgbatch_… --item cat --output cat.png"],
  exits: [...waiting.filter((name) => name !== "timeout"), "saving"],
  load: () => import("../commands/download.ts"),
};
