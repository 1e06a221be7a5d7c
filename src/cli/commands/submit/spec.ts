import { IMAGE_MIME_TYPES } from "../../../contract/image-formats.ts";
import { NAMINGS } from "../../../runs/directory/names.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { formatOption, running, runOptions, upstreamOption } from "../shared-options.ts";

export const submit: CommandSpec = {
  name: "submit",
  summary: "check prompts, submit them, wait, download and verify; run it again to resume or repair",
  arguments: [
    { name: "<file...>", description: "prompt files (.jsonl, .txt, .csv, .tsv), or - for standard input" },
  ],
  options: [
    { flags: "-m, --model <id>", description: "the model", default: "the first of `imgbatch models`" },
    upstreamOption,
    {
      flags: "-n, --name <name>",
      description: "a name for the run",
      default: "the stem of the first file",
    },
    {
      flags: "-o, --output <dir>",
      description: "the directory of the run",
      default: "<stem of the first file>-images",
    },
    formatOption,
    { flags: "--count <n>", description: "images for each prompt that sets no output_count", default: "1" },
    {
      flags: "--mime-type <type>",
      description: "image/png, image/jpeg or image/webp",
      default: "image/png",
      choices: IMAGE_MIME_TYPES,
    },
    {
      flags: "--aspect-ratio <w:h>",
      description: "not for batches, which cannot choose it: `imgbatch generate --file` takes it",
    },
    {
      flags: "--size <tier>",
      description: "1K, the only size of batches: `imgbatch generate --file` takes others",
      default: "1K",
      choices: ["1K"],
    },
    {
      flags: "--metadata <k=v>",
      description: "a pair to store with the batch; may be repeated",
      repeatable: true,
    },
    { flags: "--parent <id>", description: "the id of the batch that this one retries" },
    { flags: "--max-batch <n>", description: "at most this many images in a batch", default: "200" },
    { flags: "-d, --detach", description: "print the batch ids and do not wait" },
    ...runOptions,
    {
      flags: "--dry-run",
      description:
        "check and count the prompts, estimate the cost, print the idempotency keys; submit nothing",
    },
    {
      flags: "--update",
      description: "after the prompts were edited: make only changed and added ones, keep the others",
    },
    {
      flags: "--strict",
      description: "refuse unknown fields and columns instead of keeping them as metadata",
    },
    { flags: "--new", description: "generate and pay again, even if the same run was submitted before" },
    {
      flags: "--idempotency-key <key>",
      description: "use this key instead of one made from the content",
    },
    {
      flags: "--names <how>",
      description:
        "name the files by `id`, by id and `words` of the prompt, or `auto`: words for prompts without an id of their own",
      default: "auto; a run keeps its names",
      choices: NAMINGS,
    },
    { flags: "--zip", description: "keep the ZIP instead of unpacking it" },
  ],
  examples: [
    "imgbatch submit prompts.jsonl",
    "imgbatch submit prompts.jsonl --upstream google",
    "imgbatch submit prompts.csv --output out --max-cost 5",
    "imgbatch submit prompts.jsonl --update --dry-run",
    "cat prompts.jsonl | imgbatch submit - --json",
    "imgbatch submit prompts.jsonl && echo green || echo red",
  ],
  exits: running,
  resumes: true,
  load: () => import("./run.ts"),
};
