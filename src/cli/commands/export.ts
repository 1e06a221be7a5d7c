import { randomBytes } from "node:crypto";
import { lstat, readdir, rename, rm } from "node:fs/promises";
import { extname, join, resolve } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { FILE_FORMATS, FITS } from "../../contract/image-formats.ts";
import { makeDirectory, PARTIAL_SUFFIX, writeFileDurably } from "../../kernel/files.ts";
import { counted, foldFileName, formatSize } from "../../kernel/text.ts";
import { checkFiles, type WantedFile } from "../../prompts/wanted-files.ts";
import { shapedPicture } from "../../runs/derived-files.ts";
import { withRunLock } from "../../runs/directory/claim.ts";
import { type RunInput, readRunInput } from "../../runs/directory/input.ts";
import { type ResultLine, readResults } from "../../runs/directory/results.ts";
import { isIntact, type ResultFile } from "../../runs/directory/run-files.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import { readReview, versionOf } from "../../runs/review.ts";
import { stands } from "../../runs/standing.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import * as option from "../options.ts";
import { fetchAgain } from "../output/reports.ts";
import { noRun } from "../targets.ts";

const LAYOUTS = ["imagefolder"] as const;
const METADATA_FILE = "metadata.jsonl";

const options = {
  output: option.path({
    flags: "-o, --output <dir>",
    description: "the directory to write, which is new or empty",
  }),
  layout: option.choice({
    flags: "--layout <name>",
    description:
      "imagefolder: the pictures with metadata.jsonl, which has file_name and text, as Hugging Face reads it",
    default: "imagefolder",
    choices: LAYOUTS,
  }),
  pixels: option.text({
    flags: "--pixels <size>",
    description: "1024x1024 exactly, or one side such as 1024x or x768",
  }),
  fit: option.choice({
    flags: "--fit <how>",
    description: "how a picture comes into these pixels",
    default: "cover",
    choices: FITS,
  }),
  position: option.text({
    flags: "--position <where>",
    description: "which part stays when it is cut",
    default: "attention",
  }),
  fileFormat: option.choice({
    flags: "--file-format <format>",
    description: "the format of the pictures",
    default: "that of each picture",
    choices: FILE_FORMATS,
  }),
  encodeQuality: option.text({
    flags: "--encode-quality <n>",
    description: "1 to 100, for jpeg, webp and avif",
  }),
  trim: option.flag({ flags: "--trim", description: "cut the flat or transparent border off first" }),
  force: option.flag({ flags: "--force", description: "write over an earlier export" }),
};
type Typed = option.Values<typeof options>;

export const command = defineCommand({
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options,
  examples: [
    "imgbatch export prompts-images --output data --layout imagefolder",
    "imgbatch export prompts-images -o data --pixels 512x512 --file-format jpeg",
  ],
  notes: [
    "Pictures that the review has dropped stay out. Of a prompt with several images and a choice, the chosen one is written. Without options the files are copied byte for byte. Costs nothing, and asks nobody.",
  ],
  exits: ["conflict", "temporary", "saving", "interrupted", "terminated"],
  run,
});

/** A picture to write. */
interface Picture {
  result: ResultLine;
  file: ResultFile;
  name: string;
  text: string;
}

/** `imgbatch export`: writes the pictures of a run as a data set. */
async function run(context: CommandContext<Typed>): Promise<CommandResult> {
  const { options, cwd, output, signal, clock } = context;
  const [shownDir = "."] = context.arguments;
  const dir = resolve(cwd, shownDir);
  const { output: shownTo } = options;
  if (shownTo === undefined)
    throw new ImgbatchError("USAGE", "--output: name the directory to write.", { param: "--output" });
  const to = resolve(cwd, shownTo);
  const form = formOf(options);
  if ((await readRunState(dir)) === null) throw noRun(shownDir, cwd);
  const isNew = await requireFree(to, shownTo, options.force);
  return withRunLock(dir, { clock, signal }, async () => {
    const lines = await readResults(dir);
    const input = await readRunInput(dir);
    const { pictures, dropped } = await picturesOf(dir, lines, input, form?.format);
    await requireHere(dir, shownDir, lines, pictures, signal);
    // A new directory gets its name when all files are in it.
    const folder = isNew ? `${to}.${randomBytes(6).toString("hex")}${PARTIAL_SUFFIX}` : to;
    let bytes = 0;
    try {
      await saving(to, () => makeDirectory(folder));
      for (const [i, { result, file, name }] of pictures.entries()) {
        signal.throwIfAborted();
        output.progress(`writing picture ${i + 1} of ${pictures.length}`);
        const data = await shapedPicture(dir, { line: input.get(result.custom_id), result, file }, form);
        bytes += data.length;
        await saving(join(to, name), () => writeFileDurably(join(folder, name), data));
      }
      const rows = pictures.map(({ name, text }) => `${JSON.stringify({ file_name: name, text })}\n`);
      await saving(to, () => writeFileDurably(join(folder, METADATA_FILE), rows.join("")));
      if (isNew) await saving(to, () => rename(folder, to));
    } catch (error) {
      if (isNew) await rm(folder, { recursive: true, force: true });
      throw error;
    }
    output.settle();
    const out =
      dropped === 0
        ? ""
        : `; ${counted(dropped, "picture")} dropped in the review ${dropped === 1 ? "stays" : "stay"} out`;
    output.note(
      `${shownTo} has ${counted(pictures.length, "picture")} and ${METADATA_FILE} (${formatSize(bytes)})${out}`,
    );
    return { json: { directory: shownTo, images: pictures.length, dropped, bytes }, lines: [shownTo] };
  });
}

/** Reads the form in which the pictures are written; null where their files are copied. Throws `USAGE`. */
function formOf({
  pixels,
  fit,
  position,
  encodeQuality,
  fileFormat: format,
  trim,
}: Typed): Partial<WantedFile> | null {
  const shape = { pixels, fit, position, encode_quality: encodeQuality, trim: trim ? true : undefined };
  if (format === undefined && Object.values(shape).every((value) => value === undefined)) return null;
  // Of a picture whose format is kept, only the shape is checked.
  const file = `picture.${format ?? "webp"}`;
  const [wanted] = checkFiles({ file, ...shape }, {}, (field, message) => {
    const flag = `--${(field ?? "output").replaceAll("_", "-")}`;
    throw new ImgbatchError("USAGE", `${flag}: ${message}.`, { param: flag });
  });
  const { path: _, format: __, ...checked } = wanted ?? { path: "", format };
  return { ...checked, ...(format !== undefined && { format }) };
}

/**
 * Returns the pictures of a run in its order, each with its prompt. Pictures that the review has dropped are left out. Where a person
 * has chosen among the images of a prompt, only the chosen one is returned.
 */
async function picturesOf(
  dir: string,
  lines: readonly ResultLine[],
  input: Pick<RunInput, "get">,
  format: string | undefined,
): Promise<{ pictures: Picture[]; dropped: number }> {
  const { verdicts, choices } = await readReview(dir);
  const names = new Set<string>();
  const pictures: Picture[] = [];
  let dropped = 0;
  const chosen = new Map([...choices.values()].map(({ id, version }) => [id, version]));
  for (const line of lines) {
    const [file] = line.files;
    if (file === undefined || !stands(line, "here")) continue;
    const version = versionOf(file);
    const verdict = verdicts.get(line.custom_id);
    if (verdict?.verdict === "drop" && verdict.version === version) {
      dropped++;
      continue;
    }
    const [, prompt = ""] = /^(.*)_\d{2,}$/s.exec(line.custom_id) ?? [];
    const choice = chosen.get(prompt);
    if (choice != null && choice !== version) continue;
    const ending = format === undefined ? extname(file.path) : `.${format === "jpeg" ? "jpg" : format}`;
    const stem = stemOf(file);
    let name = `${stem}${ending}`;
    for (let n = 2; names.has(foldFileName(name)); n++) name = `${stem}~${n}${ending}`;
    names.add(foldFileName(name));
    pictures.push({ result: line, file, name, text: input.get(line.custom_id)?.prompt ?? "" });
  }
  return { pictures, dropped };
}

const stemOf = ({ path }: ResultFile) => path.replace(/^.*\//, "").replace(/\.[^.]*$/, "");

/** Throws `IMAGES_MISSING` with the names of the pictures that are not here, or are not as they were made. */
async function requireHere(
  dir: string,
  shownDir: string,
  lines: readonly ResultLine[],
  pictures: readonly Picture[],
  signal: AbortSignal,
): Promise<void> {
  const missing = lines.filter((line) => stands(line, "later", "lost")).map(({ custom_id: id }) => id);
  for (const { file } of pictures) {
    signal.throwIfAborted();
    if (!(await isIntact(dir, file))) missing.push(file.path);
  }
  if (missing.length === 0) return;
  const message = `Missing here or changed: ${counted(missing.length, "image")} of ${shownDir}. Nothing was written.`;
  const advice = fetchAgain({ lines }, shownDir).retryCommand;
  throw new ImgbatchError("IMAGES_MISSING", message, { details: missing, ...(advice && { advice }) });
}

/**
 * Throws `FILE_EXISTS` for a directory that is not empty. With `mayReplace`, it may be an earlier export. Returns whether there is
 * nothing in it yet.
 */
async function requireFree(to: string, shownTo: string, mayReplace: boolean): Promise<boolean> {
  const facts = await lstat(to).catch(() => null);
  if (facts === null) return true;
  const names = facts.isDirectory() ? await readdir(to).catch(() => []) : null;
  if (names?.length === 0) return true;
  if (mayReplace && names?.includes(METADATA_FILE)) return false;
  const message = names === null ? `${shownTo} is a file.` : `${shownTo} is not empty.`;
  const advice = names?.includes(METADATA_FILE)
    ? "add --force to write over the earlier export, or name another directory with --output"
    : "name another directory with --output";
  throw new ImgbatchError("FILE_EXISTS", message, { param: "--output", advice });
}
