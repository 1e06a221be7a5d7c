import { randomUUID } from "node:crypto";
import { access, constants, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, delimiter, join } from "node:path";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import type { GeneratedImages, ImageRequest } from "../../domain/ports/image-provider.ts";
import { linkSignals } from "../../kernel/signals.ts";
import { joinTurns } from "../../kernel/text.ts";
import { type Leftovers, MARK, startGuard } from "../../processes/guard.ts";
import { pixelsOf } from "../catalogue/catalogue.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";
import { AnswerImages, withImages } from "../upstream/answer-images.ts";
import { readAnswer } from "./answer.ts";
import { cannotStart, runProgram } from "./run-program.ts";

/** The variables that every program sees when they are set. */
const ALWAYS_SEEN = [
  ...["PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE"],
  ...["LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"],
];

/**
 * Makes images with a program of one's own, which is started for each image. The program and everything that it has
 * started end with the call. After a kill of this process a guard ends them. Windows has no process groups: there only
 * the program itself is ended.
 */
export function createCommandAdapter(entry: EntryOf<"command">, deps: AdapterDeps): UpstreamAdapter {
  const closing = new AbortController();
  const calls = new Map<Promise<unknown>, AbortSignal>();
  const leftovers = new Set<Leftovers>();
  let guard: ReturnType<typeof startGuard> | null = null;
  const tellGuard = () => {
    guard ??= startGuard();
    guard.update([...leftovers]);
  };

  const call = async (request: ImageRequest, signal: AbortSignal, onSent: () => void) => {
    signal.throwIfAborted();
    const folder = await makeWorkFolder(request);
    const left: Leftovers = { mark: randomUUID(), directory: folder.path };
    try {
      leftovers.add(left);
      tellGuard();
      await folder.fill();
      signal.throwIfAborted();
      onSent();
      const end = await runProgram(argvOf(entry, request, folder), {
        env: environmentOf(entry, deps, left.mark),
        input: JSON.stringify(inputOf(entry, request, folder, deps.clock.nowMs())),
        mark: left.mark,
        clock: deps.clock,
        signal,
        onStarted: (pid) => {
          left.child = { pid, group: process.platform === "win32" ? null : pid };
          tellGuard();
        },
      });
      const images = new AnswerImages(entry.name, deps, signal);
      return await withImages(images, () =>
        readAnswer(end, entry.argv[0] ?? "", folder.output, request.seed, images),
      );
    } finally {
      await removeWorkFolder(folder.path);
      leftovers.delete(left);
      tellGuard();
    }
  };

  return {
    address: entry.argv.join(" "),
    takes: {
      maxReferences: 14,
      ratios: "any",
      tiers: "any",
      pixelsOf: pixelsOf(entry),
      options: ["quality", "background", "seed", "negativePrompt"],
    },
    generate: async (request, signal, onSent): Promise<GeneratedImages> => {
      // A program that is being ended may still hold the graphics card.
      await Promise.allSettled([...calls].flatMap(([ending, { aborted }]) => (aborted ? ending : [])));
      const linked = linkSignals(signal, closing.signal);
      const running = call(request, linked.signal, onSent).finally(() => linked.unlink());
      calls.set(running, linked.signal);
      try {
        return await running;
      } finally {
        calls.delete(running);
      }
    },
    probe: () => requireProgram(entry.argv[0] ?? "", deps.secret("PATH") ?? ""),
    close: async () => {
      closing.abort(new DOMException("The provider was closed.", "AbortError"));
      await Promise.allSettled(calls.keys());
      await guard?.dismiss();
    },
  };
}

/** Replaces the placeholders in one pass, so that no value is read as another placeholder. */
function argvOf({ argv }: EntryOf<"command">, request: ImageRequest, folder: WorkFolder): string[] {
  const values: Record<string, string> = {
    prompt_file: folder.promptFile,
    width: String(request.size.widthPx),
    height: String(request.size.heightPx),
    seed: String(request.seed),
    output: folder.outputFile,
  };
  const [file = "", ...args] = argv;
  const filled = args.map((arg) =>
    arg.replace(/\{(prompt_file|width|height|seed|output)\}/g, (_, name: string) => values[name] ?? ""),
  );
  return [file, ...filled];
}

/** The one JSON object on the program's standard input. `deadline_ms`: ms since 1970, when the program is ended. */
function inputOf(entry: EntryOf<"command">, request: ImageRequest, folder: WorkFolder, nowMs: number) {
  const { quality, background, negativePrompt } = request.asked ?? {};
  return {
    v: 1,
    id: folder.id,
    prompt: folder.prompt,
    model: request.model,
    ratio: request.ratio,
    size: request.tier,
    width: request.size.widthPx,
    height: request.size.heightPx,
    mime_type: request.mimeType,
    seed: request.seed,
    ...(quality != null && { quality }),
    ...(background != null && { background }),
    ...(negativePrompt != null && { negative_prompt: negativePrompt }),
    references: folder.references,
    output_dir: folder.output,
    deadline_ms: Math.round(nowMs + entry.timeoutSeconds * 1000),
  };
}

function environmentOf(entry: EntryOf<"command">, deps: AdapterDeps, mark: string): Record<string, string> {
  const env: Record<string, string> = { [MARK]: mark };
  for (const name of [...ALWAYS_SEEN, ...entry.env]) {
    const value = deps.secret(name);
    if (value !== null) env[name] = value;
  }
  return env;
}

/** Throws `ProviderError` unless the program exists and may be run. A name without a slash is looked up in `PATH`. */
async function requireProgram(file: string, path: string): Promise<void> {
  const candidates = file.includes("/") ? [file] : path.split(delimiter).map((folder) => join(folder, file));
  let found: NodeJS.ErrnoException = Object.assign(new Error(), { code: "ENOENT" });
  for (const candidate of candidates) {
    try {
      await access(candidate, constants.X_OK);
      if ((await stat(candidate)).isFile()) return;
      found = Object.assign(new Error(), { code: "EACCES" });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EACCES") found = error as NodeJS.ErrnoException;
    }
  }
  throw cannotStart(file, found);
}

/** The private files of one call, in the folder for temporary files. */
interface WorkFolder {
  path: string;
  /** Unique on this machine while the call runs. */
  id: string;
  /** The whole text: earlier turns, then the newest. */
  prompt: string;
  promptFile: string;
  /** The directory that the program writes its images to. */
  output: string;
  /** The path of a file in the output directory, with the extension of the requested type. For programs that take one path. */
  outputFile: string;
  references: { path: string; mime_type: string }[];
  /** Writes the prompt and the reference images. */
  fill(): Promise<void>;
}

/** Makes a folder that only this user can read, with an empty directory for the outputs. */
async function makeWorkFolder(request: ImageRequest): Promise<WorkFolder> {
  const path = await mkdtemp(join(tmpdir(), "imgbatch-command-"));
  const promptFile = join(path, "prompt.txt");
  const output = join(path, "output");
  const prompt = joinTurns(request.earlier ?? "", request.prompt);
  const references = request.references.map(({ mimeType }, index) => ({
    path: join(path, `reference-${index + 1}.${IMAGE_EXTENSIONS[mimeType]}`),
    mime_type: mimeType,
  }));
  return {
    path,
    id: basename(path),
    prompt,
    promptFile,
    output,
    outputFile: join(output, `image.${IMAGE_EXTENSIONS[request.mimeType]}`),
    references,
    fill: async () => {
      await mkdir(output, { mode: 0o700 });
      await writeFile(promptFile, prompt, { mode: 0o600 });
      for (const [index, reference] of request.references.entries())
        await reference.lend((bytes) => writeFile(references[index]?.path ?? "", bytes, { mode: 0o600 }));
    },
  };
}

/** Removes the folder. A folder that cannot be removed must not cost an image that was made. */
async function removeWorkFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
}
