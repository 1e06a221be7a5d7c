import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { ImgbatchError } from "../../../contract/errors.ts";
import {
  NO_SHAPES,
  RATIO_ADVICE,
  readRatio,
  readSize,
  SIZE_ADVICE,
  unbatchableField,
} from "../../../prompts/shape.ts";
import { RUN_STATE_FILE } from "../../../runs/directory/run-state.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import { flagOf, readOption, textOption } from "../../command-line/option-values.ts";
import { defaultRunDirectory, nextCommand } from "../../result/next-command.ts";

/** The options of `submit` that `generate --file` takes too. */
const SHARED = [
  "aspectRatio",
  "size",
  "model",
  "upstream",
  "output",
  "format",
  "count",
  "mimeType",
  "maxCost",
];

/** Returns the command line that makes the images of a prompt file in real time, with the options that were typed. */
export function realtimeCommand({ options, global, cwd }: CommandContext, file: string): string {
  const output = textOption(options, "output") ?? defaultRunDirectory(file);
  // The files of a run of batches are not mixed with others.
  const free = isOfBatches(resolve(cwd, output)) ? `${output}-generated` : textOption(options, "output");
  const words = SHARED.flatMap((name) => {
    const value = name === "output" ? free : textOption(options, name);
    return value === undefined ? [] : [{ flag: flagOf(name) }, value];
  });
  return nextCommand(global, "generate", { flag: "--file" }, file, ...words);
}

function isOfBatches(dir: string): boolean {
  try {
    return JSON.parse(readFileSync(join(dir, RUN_STATE_FILE), "utf8")).kind !== "realtime";
  } catch {
    return false;
  }
}

/** Throws `USAGE` for a ratio or size that no batch has. The advice is the command that makes such images. */
export function requireBatchShape(context: CommandContext): void {
  const { options, arguments: files } = context;
  const aspectRatio = readOption(options, "aspectRatio", RATIO_ADVICE, readRatio);
  const size = readOption(options, "size", SIZE_ADVICE, readSize);
  const shape = {
    ...(aspectRatio === undefined ? {} : { aspectRatio }),
    ...(size === undefined ? {} : { size }),
  };
  const field = unbatchableField(shape);
  if (field === null) return;
  const param = field === "size" ? "--size" : "--aspect-ratio";
  const commands = files.map((file) => realtimeCommand(context, file)).join("; ");
  throw new ImgbatchError("USAGE", `${param}: ${NO_SHAPES}. Nothing was sent.`, {
    param,
    advice: `${commands} (one request for each image, at the real-time price)`,
  });
}
