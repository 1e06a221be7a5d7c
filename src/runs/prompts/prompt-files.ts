import { createReadStream } from "node:fs";
import { dirname, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { RowRules } from "../../prompts/check-row.ts";
import { PromptReader, type ReadPrompt } from "../../prompts/prompt-reader.ts";
import { loadReference } from "./load-reference.ts";
import type { PromptItem, PromptReference } from "./prompt-item.ts";
import { Spool } from "./spool.ts";

/** The name of standard input on the command line. */
export const STDIN = "-";

export interface PromptSource {
  /** A path, or `-`. */
  name: string;
  cwd: string;
  /** Opens standard input. */
  stdin: () => AsyncIterable<Uint8Array>;
}

const PIECE_BYTES = 256 * 1024;

/**
 * Reads and checks prompt files, in order, line by line: of a large input only a part stays in memory, the rest goes
 * into `spool`. Throws `INVALID_INPUT` with the problems of every file, one a line (`file:line: field: what is wrong,
 * what would be right`); nothing is half accepted.
 */
export async function readPromptFiles(
  sources: readonly PromptSource[],
  rules: RowRules,
  spool = new Spool(),
): Promise<PromptItem[]> {
  const input: Input = { rules, spool, reader: new PromptReader(rules), items: [] };
  for (const source of sources) await readOne(source, input);
  const files = sources.map(fileOf);
  input.reader.finish(files).throwIfAny(files);
  return input.items;
}

/** The state of reading files. */
interface Input {
  rules: RowRules;
  spool: Spool;
  reader: PromptReader;
  items: PromptItem[];
}

async function readOne(source: PromptSource, input: Input): Promise<void> {
  const { reader, rules } = input;
  const file = fileOf(source);
  const path = resolve(source.cwd, source.name);
  const isStdin = source.name === STDIN;
  const baseDir = isStdin ? source.cwd : dirname(path);
  const bytes = isStdin ? source.stdin() : createReadStream(path, { highWaterMark: PIECE_BYTES });
  try {
    for await (const prompt of reader.read(file, bytes, isStdin ? (rules.stdinFormat ?? null) : null))
      await keep(prompt, baseDir, input);
  } catch (error) {
    const code = systemCode(error);
    // The input is not wrong: reading was interrupted, or the disk for temporary files is full.
    if (code === null) throw error;
    const message = code === "ENOENT" ? "no such file" : `cannot be read (${code})`;
    reader.problems.add({ file, line: null }, null, message);
  }
}

async function keep({ row, fileLine, report }: ReadPrompt, baseDir: string, input: Input): Promise<void> {
  const { rules, spool, reader, items } = input;
  const { references: specs, prompt, metadata: extra, ...fields } = row;
  const references: PromptReference[] = [];
  for (const spec of specs) {
    const reference = await loadReference(spec, { baseDir, limits: rules.limits, spool }, report);
    if (reference !== null) references.push(reference);
  }
  // A refused input returns no items.
  if (reader.problems.count > 0) items.length = 0;
  else {
    const metadata = extra === null ? null : spool.keepText(JSON.stringify(extra));
    items.push({ ...fields, prompt: spool.keepText(prompt), references, metadata, fileLine });
  }
}

function systemCode(error: unknown): string | null {
  if (error instanceof ImgbatchError || !(error instanceof Error) || !("syscall" in error)) return null;
  return "code" in error ? String(error.code) : null;
}

function fileOf(source: PromptSource): string {
  return source.name === STDIN ? "<stdin>" : source.name;
}
