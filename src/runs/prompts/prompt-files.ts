import { createReadStream } from "node:fs";
import { dirname, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { expandedCustomIds } from "../../contract/text-rules.ts";
import { counted } from "../../kernel/text.ts";
import { checkRow, isTaken, type RowRules } from "./check-row.ts";
import { formatOf } from "./formats.ts";
import { readLines } from "./lines.ts";
import { loadReference } from "./load-reference.ts";
import { Problems } from "./problems.ts";
import type { FileLine, PromptItem, PromptReference, Report } from "./prompt-item.ts";
import type { Row } from "./rows.ts";
import { unbatchableField } from "./shape.ts";
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
  const input: Input = {
    rules,
    spool,
    problems: new Problems(),
    owners: new Map(),
    items: [],
    crowded: [],
    shaped: [],
  };
  for (const source of sources) await readOne(source, input);
  for (const source of sources) reportShaped(fileOf(source), input);
  if (input.problems.count > 0) reportCrowded(input);
  input.problems.throwIfAny(sources.map(fileOf));
  return input.items;
}

/** The state of reading files. */
interface Input {
  rules: RowRules;
  spool: Spool;
  problems: Problems;
  /** The line that uses each id, numbered ids included. */
  owners: Map<string, FileLine>;
  items: PromptItem[];
  /** Lines with more reference images than usual. */
  crowded: { fileLine: FileLine; count: number }[];
  /** Lines that ask for a ratio or size that no batch has, with the field. */
  shaped: { fileLine: FileLine; field: string }[];
}

/** Reports lines with unusually many references now: the service's own limit is only known after all else is right. */
function reportCrowded({ rules: { usualReferences }, problems, crowded }: Input): void {
  for (const { fileLine, count } of crowded) {
    const message = `${usualReferences?.who} at most ${counted(usualReferences?.max ?? 0, "reference image")}; this prompt has ${count}`;
    problems.add(fileLine, "reference_images", message);
  }
}

/** Reports the first line of a file that asks for a ratio or size that no batch has: one command makes them all. */
function reportShaped(file: string, { rules: { isBatchOf }, problems, shaped }: Input): void {
  const [first, ...others] = shaped.filter(({ fileLine }) => fileLine.file === file);
  if (first === undefined || isBatchOf === undefined) return;
  const also = others.length === 0 ? "" : ` (also on ${counted(others.length, "other line")})`;
  const message = `${NO_SHAPES}${also}; ${isBatchOf(file)} makes these images, one request each, at the real-time price`;
  problems.add(first.fileLine, first.field, message);
}

/** Batches have neither field. */
export const NO_SHAPES = "a batch makes 1K images in the ratio that the model chooses";

async function readOne(source: PromptSource, input: Input): Promise<void> {
  const file = fileOf(source);
  const { problems, rules } = input;
  const path = resolve(source.cwd, source.name);
  const isStdin = source.name === STDIN;
  const baseDir = isStdin ? source.cwd : dirname(path);
  const reportLine = (line: number | null, field: string | null, message: string) =>
    problems.add({ file, line }, field, message);
  const before = problems.count;
  const { read, maxLineBytes } = formatOf(file, rules.limits, isStdin ? (rules.stdinFormat ?? null) : null);
  const bytes = isStdin ? source.stdin() : createReadStream(path, { highWaterMark: PIECE_BYTES });
  const lines = async function* () {
    for await (const line of readLines(bytes, maxLineBytes)) {
      if (line.problem !== null) reportLine(line.number, null, line.problem);
      yield line;
    }
  };
  let rowCount = 0;
  try {
    const mayHave = (name: string) => isTaken(name, rules.isStrict ?? false);
    for await (const row of read(lines(), reportLine, mayHave)) {
      rowCount++;
      await readRow(row, { file, line: row.line }, baseDir, input);
    }
  } catch (error) {
    const code = systemCode(error);
    // The input is not wrong: reading was interrupted, or the disk for temporary files is full.
    if (code === null) throw error;
    return reportLine(null, null, code === "ENOENT" ? "no such file" : `cannot be read (${code})`);
  }
  if (rowCount === 0 && problems.count === before) reportLine(null, null, "holds no prompts");
}

async function readRow({ fields }: Row, fileLine: FileLine, baseDir: string, input: Input): Promise<void> {
  const { rules, spool, problems } = input;
  const report: Report = (field, message) => problems.add(fileLine, field, message);
  const { references: specs, prompt, metadata: extra, ...row } = checkRow(fields, rules, report);
  for (const name of Object.keys(extra ?? {})) rules.kept?.add(name);
  const most = rules.usualReferences?.max ?? Number.POSITIVE_INFINITY;
  if (specs.length > most) input.crowded.push({ fileLine, count: specs.length });
  const field = rules.isBatchOf === undefined ? null : unbatchableField(row);
  if (field !== null) input.shaped.push({ fileLine, field });
  const references: PromptReference[] = [];
  for (const spec of specs) {
    const reference = await loadReference(spec, { baseDir, limits: rules.limits, spool }, report);
    if (reference !== null) references.push(reference);
  }
  if (row.customId !== null) claimIds(row.customId, row.outputCount, fileLine, input);
  // A refused input returns no items.
  if (problems.count > 0) input.items.length = 0;
  else {
    const metadata = extra === null ? null : spool.keepText(JSON.stringify(extra));
    input.items.push({ ...row, prompt: spool.keepText(prompt), references, metadata, fileLine });
  }
}

/** Reports an id that another line uses, or that an image of another line gets. */
function claimIds(customId: string, count: number, fileLine: FileLine, { owners, problems }: Input): void {
  const ids = expandedCustomIds(customId, count);
  const taken = ids.find((id) => owners.has(id));
  const other = taken === undefined ? undefined : owners.get(taken);
  for (const id of ids) if (!owners.has(id)) owners.set(id, fileLine);
  if (other === undefined) return;
  const message = `${JSON.stringify(taken)} is already used by ${other.file}:${other.line}; every image needs an id of its own`;
  problems.add(fileLine, "custom_id", message);
}

function systemCode(error: unknown): string | null {
  if (error instanceof ImgbatchError || !(error instanceof Error) || !("syscall" in error)) return null;
  return "code" in error ? String(error.code) : null;
}

function fileOf(source: PromptSource): string {
  return source.name === STDIN ? "<stdin>" : source.name;
}
