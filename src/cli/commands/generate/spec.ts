import { SIZE_TIERS } from "../../../contract/images/image-sizes.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking, reportOptions } from "../shared-options.ts";

export const generate: CommandSpec = {
  name: "generate",
  summary: "make an image at once, or many of a file: each is a request of its own",
  arguments: [{ name: "[prompt]", description: "what the image shows, or - for standard input" }],
  options: [
    {
      flags: "-o, --output <path>",
      description:
        "the file, or a directory for a name made from the prompt; with --file, the directory of the run",
      default: "here; with --file, <stem of the file>-images",
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
    { flags: "--size <tier>", description: "1K, 2K or 4K", default: "1K", choices: SIZE_TIERS },
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
    ...reportOptions.map((option) => ({ ...option, description: `with --file: ${option.description}` })),
    { flags: "--retries <n>", description: "further attempts for what may pass, 0 to 3", default: "3" },
    {
      flags: "--timeout <time>",
      description:
        "give up everything after this time; one attempt gets 120 s (1K), 180 s (2K) or 300 s (4K)",
    },
  ],
  examples: [
    'imgbatch generate "a red fox in the snow" -o fox.png',
    'imgbatch generate "in autumn" -i fox.png -o autumn.png --size 2K',
    "imgbatch generate --file prompts.jsonl -o out -j 8 --rpm 60",
  ],
  notes: [
    "The ending of the file follows the real type of the image: when a JPEG comes for fox.png, it is saved as fox.jpg, which is said and printed. A file that is there is not replaced without --force, and then nothing is sent.",
    "Requests have no idempotency key: running a single one again makes and bills another image, and an attempt whose answer was lost may be billed too. With --file, the same command again makes only what is missing. For large numbers use `imgbatch submit`, which costs less and never pays twice.",
  ],
  exits: [...asking, "someFailed", "noImages", "timeout", "money", "saving"],
  paysAgain: true,
  load: () => import("./run.ts"),
};
