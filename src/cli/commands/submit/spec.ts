import { IMAGE_MIME_TYPES } from "../../../contract/images/image-types.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { running, runOptions } from "../shared-options.ts";

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
    {
      flags: "--mime-type <type>",
      description: "image/png, image/jpeg or image/webp",
      default: "image/png",
      choices: IMAGE_MIME_TYPES,
    },
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
  resumes: true,
  load: () => import("./run.ts"),
};
