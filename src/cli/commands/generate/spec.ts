import { IMAGE_MIME_TYPES, SIZE_TIERS } from "../../../contract/image-formats.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { formatOption, maxCostOption, reportOptions, running, upstreamOption } from "../shared-options.ts";

export const generate: CommandSpec = {
  name: "generate",
  summary: "make one image now, or all images of a prompt file; each is a separate request",
  arguments: [{ name: "[prompt]", description: "the description of the image, or - for standard input" }],
  options: [
    {
      flags: "-o, --output <path>",
      description:
        "the image file, or a directory in which the prompt names it; with --file, the directory of the run",
      default: "this directory; with --file, <stem of the file>-images",
    },
    {
      flags: "-i, --image <file>",
      description:
        "an input image to edit or follow (PNG, JPEG, WebP); may be repeated; with --file, for prompts without images of their own",
      repeatable: true,
    },
    {
      flags: "-m, --model <id>",
      description: "the model",
      default: "the first of `imgbatch models --realtime`",
    },
    upstreamOption,
    {
      flags: "--aspect-ratio <w:h>",
      description: "width to height, such as 1:1, 3:2 or 16:9; a prompt's aspect_ratio wins",
      default: "the model decides",
    },
    {
      flags: "--size <tier>",
      description: "512, 1K, 2K or 4K, as far as the model has it; a prompt's size wins",
      default: "1K",
      choices: SIZE_TIERS,
    },
    {
      flags: "--mime-type <type>",
      description: "image/png, image/jpeg or image/webp",
      default: "by the ending of the file in --output, else image/png",
      choices: IMAGE_MIME_TYPES,
    },
    maxCostOption,
    { flags: "--force", description: "replace an existing file" },
    {
      flags: "--file <file>",
      description: "make all images of a prompt file (.jsonl, .txt, .csv, .tsv, or -)",
    },
    { flags: "-j, --jobs <n>", description: "with --file: concurrent requests", default: "4" },
    { flags: "--rpm <n>", description: "with --file: at most this many requests per minute" },
    { ...formatOption, description: `with --file -: ${formatOption.description}` },
    {
      flags: "--count <n>",
      description: "with --file: images for each prompt that sets no output_count",
      default: "1",
    },
    ...reportOptions.map((option) => ({ ...option, description: `with --file: ${option.description}` })),
    { flags: "--retries <n>", description: "further attempts after a temporary error, 0 to 3", default: "3" },
    {
      flags: "--timeout <time>",
      description:
        "stop everything after this time; a single attempt may take 120 s (512, 1K), 180 s (2K) or 300 s (4K)",
    },
  ],
  examples: [
    'imgbatch generate "a red fox in the snow" -o fox.png',
    'imgbatch generate "in autumn" -i fox.png -o autumn.png --size 2K',
    "imgbatch generate --file prompts.jsonl -o out -j 8 --rpm 60",
  ],
  notes: [
    "The file gets the extension of the image's real type: if the service returns a JPEG for fox.png, the image is saved as fox.jpg, and that path is printed. Without --force an existing file is never replaced: the command sends nothing and fails.",
    "Running the command again makes and bills another image. With --file, running the same command again makes only the missing images. Each request has an idempotency key: an imgbatch service bills an image once, however often its response was lost; another service may bill each attempt. For many images use `imgbatch submit`, which costs less and never pays twice.",
  ],
  exits: running,
  paysAgain: true,
  load: () => import("./run.ts"),
};
