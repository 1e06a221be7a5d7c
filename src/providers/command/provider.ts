import { randomUUID } from "node:crypto";
import { access, constants, stat } from "node:fs/promises";
import { delimiter, join } from "node:path";
import type { EntryOf } from "../../contract/provider-entries.ts";
import type { GeneratedImages, ImageRequest } from "../../domain/ports/image-provider.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import { MARK } from "../../processes/end-descendants.ts";
import { type Guard, type Leftovers, startGuard } from "../../processes/guard.ts";
import { type AdapterDeps, refuseStoredReferences, type UpstreamAdapter } from "../upstream/adapter.ts";
import { AnswerImages, withImages } from "../upstream/answer-images.ts";
import { readAnswer } from "./answer.ts";
import { cannotStart, runProgram } from "./run-program.ts";
import { makeWorkFolder, removeWorkFolder, type WorkFolder } from "./work-folder.ts";

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
  const calls = new Set<Promise<unknown>>();
  const leftovers = new Set<Leftovers>();
  let guard: Guard | null = null;
  const tellGuard = () => {
    guard ??= startGuard();
    guard.update([...leftovers]);
  };

  const call = async (request: ImageRequest, signal: AbortSignal, onSent: () => void) => {
    signal.throwIfAborted();
    refuseStoredReferences(request);
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
    takes: { maxReferences: 14, ratios: "any", tiers: "any" },
    generate: async (request, signal, onSent): Promise<GeneratedImages> => {
      const linked = linkSignals(signal, closing.signal);
      const running = call(request, linked.signal, onSent).finally(() => linked.unlink());
      calls.add(running);
      try {
        return await running;
      } finally {
        calls.delete(running);
      }
    },
    probe: () => requireProgram(entry.argv[0] ?? "", deps.secret("PATH") ?? ""),
    close: async () => {
      closing.abort(new DOMException("The provider was closed.", "AbortError"));
      await Promise.allSettled(calls);
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
