import { lstat, readFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import PQueue from "p-queue";
import { z } from "zod";
import { removeFile, saving } from "../client/file-errors.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { type DigitalSource, FILE_FORMATS, type FileForm } from "../contract/image-formats.ts";
import { expandedCustomIds } from "../contract/limits.ts";
import { appendText, makeDirectory, regularFilePieces, writeFileDurably } from "../kernel/files.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { canonicalJson } from "../kernel/json.ts";
import { firstLines, foldFileName } from "../kernel/text.ts";
import { readLines } from "../prompts/lines.ts";
import { type FileLine, formatProblem, type Problem } from "../prompts/problems.ts";
import { isNumbered, type LineFiles, pathsOf, type WantedFile } from "../prompts/wanted-files.ts";
import { type InputLine, lineFilesOf, pathFrom, type RunInput, readRunInput } from "./directory/input.ts";
import { FILES_FILE } from "./directory/names.ts";
import { type ResultLine, readVersions, writeResults } from "./directory/results.ts";
import {
  type DerivedFile,
  hashFile,
  isImagePath,
  isVersionPath,
  type ResultFile,
  readJsonLine,
  requireReplaceable,
} from "./directory/run-files.ts";
import { findFile } from "./plan/prompt-files.ts";
import { type Review, readReview, versionOf } from "./review.ts";
import { stands } from "./standing.ts";

/*
 * The files that are made of the pictures of a run, where a person wants them: cut, smaller, in another format, beside the prompt
 * file. The pictures in the run's directory stay as they are, so these files can be made again at any time, for free.
 */

/** A line of the record of a run: a file that the run has made of a picture. The line is added before the file is written. */
const recordSchema = z.object({
  /** From the directory of the prompt file on; `from` leads there from that of the run. */
  path: z.string(),
  from: z.string(),
  /** What the file was made of, and how. */
  recipe: z.string(),
  sha256: z.string(),
  width: z.int(),
  height: z.int(),
  bytes: z.int(),
  enlarged: z.literal(true).optional(),
  lost_credentials: z.literal(true).optional(),
});
type Made = z.infer<typeof recordSchema>;

/** What a run has made, by the path of the file on disk. */
class MadeFiles {
  readonly #dir: string;
  readonly #made = new Map<string, Made[]>();

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** Reads the record of a run; empty when it has none. */
  static async read(dir: string): Promise<MadeFiles> {
    const files = new MadeFiles(dir);
    try {
      for await (const { text } of readLines(regularFilePieces(join(dir, FILES_FILE)), MOST_LINE_BYTES)) {
        const made = readJsonLine(text, recordSchema);
        if (made !== null) files.#keep(made);
      }
    } catch {
      // What cannot be read is not known.
    }
    return files;
  }

  /** Whether the run has made a file with this content at a path. */
  has(path: string, sha256: string): boolean {
    return this.#of(path).some((made) => made.sha256 === sha256);
  }

  /** Returns what was made last at a path; undefined for nothing. */
  last(path: string): Made | undefined {
    return this.#of(path).at(-1);
  }

  get isEmpty(): boolean {
    return this.#made.size === 0;
  }

  /** The paths of all files that it has made. */
  paths(): string[] {
    return [...this.#made.values()].flatMap((all) => {
      const last = all.at(-1);
      return last === undefined ? [] : [resolve(this.#dir, last.from, last.path)];
    });
  }

  /** Notes a file that is about to be written. */
  async add(made: Made): Promise<void> {
    this.#keep(made);
    const path = join(this.#dir, FILES_FILE);
    await saving(path, () => appendText(path, `${JSON.stringify(made)}\n`));
  }

  #of(path: string): Made[] {
    return this.#made.get(foldFileName(path)) ?? [];
  }

  #keep(made: Made): void {
    const key = foldFileName(resolve(this.#dir, made.from, made.path));
    this.#made.set(key, [...this.#of(key), made]);
  }
}
const MOST_LINE_BYTES = 64 * 1024;

interface FilesJob {
  dir: string;
  /** The results of the run, in the order of the input. */
  lines: readonly ResultLine[];
  /** Also replace files that the run has not made, or that were changed since. Default: no. */
  force?: boolean | undefined;
  /** Make no file that has more pixels than its picture. Default: make it, and say so. */
  isStrict?: boolean | undefined;
  /** The files that a line wants now. Null: as the input of the run says. Default: always that. */
  filesOf?: ((line: InputLine) => LineFiles | null) | undefined;
  /** Whether a lock file names a file with this content at a path. Such a file may be replaced, and is not removed. Default: none does. */
  isKnown?: ((path: string, sha256: string) => boolean) | undefined;
  signal?: AbortSignal | undefined;
}

interface FilesOutcome {
  /** The results with the files that are made of their pictures. */
  lines: ResultLine[];
  /** The number of files that were written now. */
  writtenCount: number;
  /** Files that were not made: another file is in their place, or their pictures are too small or changed. */
  problems: (Problem & { code: "FILE_EXISTS" | "ITEMS_FAILED" })[];
  /** Files, as lines name them, that have more pixels than their pictures. */
  enlarged: string[];
  /** Lines whose first image became the file, since nobody has chosen one of several. */
  undecided: string[];
  /** Files that were removed, since no line names them any more. */
  removed: string[];
}

/** A file to make, and the picture that it is made of. */
interface Target {
  line: InputLine;
  files: LineFiles;
  file: WantedFile;
  /** Where the line says so. */
  field: "file" | "also";
  /** From the directory of the prompt file on. */
  path: string;
  /** The result that names the file. */
  id: string;
  /** The picture, from the directory of the run on. */
  picture: string;
  sha256: string;
  source: DigitalSource | null;
}

/** Files under way at once: while pictures are decoded, others are read and written. */
const AT_ONCE = 4;

/**
 * Makes the files that the lines of a run want of its pictures, and adds them to the results. A file that is as it should be is not
 * written again; others are replaced whole. A file that the run has not made stays, and is reported as a problem. Files that no line
 * names any more are removed if they are as the run has made them. After a kill, another call goes on. Returns null if the run wants
 * no files and has made none. Throws `SAVE_FAILED` when the disk refuses.
 */
export async function makeFiles(job: FilesJob): Promise<FilesOutcome | null> {
  const { dir, signal } = job;
  const input = await readRunInput(dir);
  const made = await MadeFiles.read(dir);
  const { targets, wanted, undecided } = await findTargets(job, input);
  if (wanted.size === 0 && made.isEmpty) return null;
  const outcome: FilesOutcome = {
    lines: [],
    writtenCount: 0,
    problems: [],
    enlarged: [],
    undecided,
    removed: [],
  };
  const queue = new PQueue({ concurrency: AT_ONCE });
  const found = await queue.addAll(
    targets.map((target) => async () => {
      signal?.throwIfAborted();
      return makeFile(target, made, job, outcome);
    }),
  );
  const derived = new Map<string, DerivedFile[]>();
  for (const [at, { id }] of targets.entries()) {
    const file = found[at];
    if (file !== null && file !== undefined) derived.set(id, [...(derived.get(id) ?? []), file]);
  }
  if (input.damage === null) outcome.removed = await removeUnnamed(made, wanted, job.isKnown);
  outcome.problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
  outcome.lines = job.lines.map(({ derived: _, ...line }) => {
    const own = derived.get(line.custom_id);
    return own === undefined ? line : { ...line, derived: own };
  });
  await writeResults(dir, outcome.lines, input);
  return outcome;
}

/** Finds the files that lines want, by their paths, and those of them whose pictures are here. */
async function findTargets({ dir, lines, filesOf = () => null }: FilesJob, input: RunInput) {
  const targets: Target[] = [];
  const wanted = new Set<string>();
  const undecided: string[] = [];
  const results = new Map(lines.map((line) => [line.custom_id, line]));
  let review: Review | null = null;
  for (const line of input.lines()) {
    const files = filesOf(line) ?? lineFilesOf(dir, line);
    if (files === null) continue;
    const ids = expandedCustomIds(line.custom_id, line.output_count ?? 1);
    const here = ids.map((id) => pictureOf(results.get(id)));
    review ??= await readReview(dir);
    const chosen = await chosenOf(dir, review.choices.get(line.custom_id), { ids, here });
    const first = here.find((each) => each !== null) ?? null;
    const isOfOne = files.wanted.some((file) => !isNumbered(file));
    if (isOfOne && chosen === null && here.filter((each) => each !== null).length > 1)
      undecided.push(line.custom_id);
    for (const [index, file] of files.wanted.entries()) {
      const field = index === 0 ? "file" : "also";
      for (const [at, path] of pathsOf(file, ids.length).entries()) {
        wanted.add(foldFileName(resolve(files.from, path)));
        const picture = isNumbered(file) ? here[at] : (chosen ?? first);
        if (picture == null) continue;
        const source = files.unmarked ? null : sourceOf(line, results.get(picture.id));
        targets.push({ line, files, file, field, path, source, ...picture });
      }
    }
  }
  return { targets, wanted, undecided };
}

interface Picture extends Pick<Target, "id" | "picture" | "sha256"> {
  /** What decisions name it by. */
  version: string;
}

/** Returns the picture of a result; null without one here. One inside a kept ZIP has no file of its own. */
function pictureOf(line: ResultLine | undefined): Picture | null {
  const [file] = line?.files ?? [];
  if (line === undefined || file === undefined || !stands(line, "here")) return null;
  if (file.entry !== undefined || !isImagePath(file.path)) return null;
  return { id: line.custom_id, picture: file.path, sha256: file.sha256, version: versionOf(file) };
}

/** Returns the picture that a person has chosen for a line; null where nobody has, or that picture is not here any more. */
async function chosenOf(
  dir: string,
  choice: Choice | undefined,
  { ids, here }: { ids: readonly string[]; here: readonly (Picture | null)[] },
): Promise<Picture | null> {
  if (choice === undefined) return null;
  const { choose, version } = choice;
  if (typeof choose === "number") {
    const picture = here[choose - 1] ?? null;
    return picture?.version === version ? picture : null;
  }
  const current = here.find((picture) => picture?.version === choose);
  if (current !== undefined) return current;
  for (const line of (await readVersions(dir)).toReversed()) {
    const file = line.files.find((each) => versionOf(each) === choose && isVersionPath(each.path));
    if (file !== undefined && ids.includes(line.custom_id))
      return { id: line.custom_id, picture: file.path, sha256: file.sha256, version: choose };
  }
  return null;
}

type Choice = NonNullable<ReturnType<Review["choices"]["get"]>>;

/** Returns how a picture was made, for its metadata: by its line in the input of the run, and its result. */
export function sourceOf(line: InputLine | undefined, result: ResultLine | undefined): DigitalSource {
  if (result?.play_money) return "algorithmicMedia";
  return line?.reference_images !== undefined
    ? "compositeWithTrainedAlgorithmicMedia"
    : "trainedAlgorithmicMedia";
}

/** Returns the bytes of a picture of a run, in another form where one is named. It then says that it is made by AI. */
export async function shapedPicture(
  dir: string,
  { line, result, file }: { line: InputLine | undefined; result: ResultLine; file: ResultFile },
  form: Partial<FileForm> | null,
): Promise<Buffer> {
  const picture = await readFile(join(dir, file.path));
  if (form === null) return picture;
  const kept = FILE_FORMATS.find((format) => file.mime_type === `image/${format}`) ?? "png";
  const { deriveFile } = await import("../imaging/derive.ts");
  const source = line === undefined ? null : sourceOf(line, result);
  return (await deriveFile(picture, { format: kept, ...form }, source)).bytes;
}

/** Makes one file, or finds it as it should be. Returns null for a file that is not made: then it is among the problems. */
async function makeFile(
  target: Target,
  made: MadeFiles,
  { dir, force = false, isStrict = false, isKnown = () => false }: FilesJob,
  outcome: FilesOutcome,
): Promise<DerivedFile | null> {
  const { line, files, file, field, path, sha256, source } = target;
  const { path: _, ...form } = file;
  const recipe = sha256Hex(
    canonicalJson({ picture: sha256, form, source } as Parameters<typeof canonicalJson>[0]),
  );
  const full = resolve(files.from, path);
  const found = (facts: Made): DerivedFile => {
    if (facts.enlarged) outcome.enlarged.push(path);
    const { recipe: _recipe, from: _from, ...derived } = facts;
    return derived;
  };
  const refuse = (code: "FILE_EXISTS" | "ITEMS_FAILED", message: string) => {
    const { file: name, line: number } = line.source;
    outcome.problems.push({
      file: name,
      line: number,
      field,
      message: `${JSON.stringify(path)} ${message}`,
      code,
    });
    return null;
  };
  const real = await findFile(files, path);
  if (real === null)
    return refuse("FILE_EXISTS", "does not lie where it may any more: a link leads elsewhere");
  const there = await hashFile(real);
  const last = made.last(full);
  if (last?.recipe === recipe && there === last.sha256) return found(last);
  const picture = await readFile(join(dir, target.picture)).catch(() => null);
  if (picture === null || sha256Hex(picture) !== sha256)
    return refuse("ITEMS_FAILED", `cannot be made: ${target.picture} was changed or removed meanwhile`);
  const { deriveFile } = await import("../imaging/derive.ts");
  const { bytes, widthPx, heightPx, isEnlarged, losesCredentials } = await deriveFile(picture, form, source);
  if (isEnlarged && isStrict)
    return refuse(
      "ITEMS_FAILED",
      `would be larger than its picture, ${target.picture}; ask for fewer pixels, or a larger size`,
    );
  const facts: Made = {
    path,
    from: pathFrom(dir, files.from),
    recipe,
    sha256: sha256Hex(bytes),
    width: widthPx,
    height: heightPx,
    bytes: bytes.length,
    ...(isEnlarged ? { enlarged: true } : {}),
    ...(losesCredentials ? { lost_credentials: true } : {}),
  };
  if (there !== null && there !== facts.sha256 && !force && !made.has(full, there) && !isKnown(full, there))
    return refuse("FILE_EXISTS", conflictOf(made.last(full) !== undefined));
  if (there === null || force) await requireReplaceable(real);
  await made.add(facts);
  if (there !== facts.sha256) {
    await saving(real, async () => {
      await makeDirectory(dirname(real));
      await writeFileDurably(real, bytes);
    });
    outcome.writtenCount++;
  }
  return found(facts);
}

/**
 * Removes the files that the run has made and that no line names any more, unless they were changed since. Those of a lock file go with
 * their entries. Returns their paths.
 */
async function removeUnnamed(
  made: MadeFiles,
  wanted: ReadonlySet<string>,
  isKnown: FilesJob["isKnown"] = () => false,
): Promise<string[]> {
  const removed: string[] = [];
  for (const path of made.paths()) {
    if (wanted.has(foldFileName(path))) continue;
    const sha256 = await hashFile(path);
    if (sha256 === null || made.last(path)?.sha256 !== sha256 || isKnown(path, sha256)) continue;
    await removeFile(path);
    removed.push(path);
  }
  return removed;
}

function conflictOf(isChanged: boolean): string {
  return isChanged ? "was changed by hand since the run made it" : "exists, and this run has not made it";
}

/**
 * Throws `FILE_EXISTS`, before anything is paid, if a file that a line wants exists and the run has not made it, or it was changed
 * since. `isKnown`: as in `FilesJob`.
 */
export async function requireOwnFiles(
  dir: string,
  items: readonly { files?: LineFiles; fileLine: FileLine; outputCount: number }[],
  isKnown: FilesJob["isKnown"] = () => false,
): Promise<void> {
  const problems: Problem[] = [];
  let made: MadeFiles | null = null;
  for (const { files = null, fileLine, outputCount } of items) {
    if (files === null) continue;
    for (const [index, file] of files.wanted.entries())
      for (const path of pathsOf(file, outputCount)) {
        const full = resolve(files.from, path);
        const there = await hashOrOther(full);
        made ??= await MadeFiles.read(dir);
        if (there === null || made.has(full, there) || isKnown(full, there)) continue;
        const message = `${JSON.stringify(path)} ${conflictOf(made.last(full) !== undefined)}`;
        problems.push({ ...fileLine, field: index === 0 ? "file" : "also", message });
      }
  }
  if (problems.length > 0) throw filesError(problems);
}

/** Returns the hash of a file, "" for anything else that is there, and null for nothing. */
async function hashOrOther(path: string): Promise<string | null> {
  const isThere = await lstat(path).then(
    () => true,
    () => false,
  );
  return isThere ? ((await hashFile(path)) ?? "") : null;
}

const MOST_SHOWN = 20;

/** Returns the error for files that the run would replace and has not made. */
function filesError(problems: readonly Problem[]): ImgbatchError {
  const which = problems.length === 1 ? "1 file is" : `${problems.length} files are`;
  const message = `${which} not as this run made ${problems.length === 1 ? "it" : "them"}, and would be replaced. Nothing was sent.`;
  return new ImgbatchError("FILE_EXISTS", message, {
    details: firstLines(problems.map(formatProblem), MOST_SHOWN),
    advice: "move them away, name other files in the lines, or replace them with --force",
  });
}
