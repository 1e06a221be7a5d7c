import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { expandedCustomIds } from "../../contract/text-rules.ts";
import { checkRow, type RowRules } from "./check-row.ts";
import { decodeText } from "./decode.ts";
import { formatOf } from "./formats.ts";
import { loadReference } from "./load-reference.ts";
import { formatProblem, type Problem, type PromptItem, type PromptReference } from "./prompt-item.ts";

/** The name of standard input on the command line. */
export const STDIN = "-";

export interface PromptSource {
  /** A path, or `-`. */
  name: string;
  cwd: string;
  readStdin: () => Promise<Uint8Array>;
}

/**
 * Reads and checks prompt files, in order. Throws `INVALID_INPUT` with every problem of every file, one a line
 * (`file:line: field: what is wrong, what would be right`); nothing is half accepted.
 * Rules: FILE-1, FILE-2, FILE-5, FILE-10, FILE-11.
 */
export async function readPromptFiles(
  sources: readonly PromptSource[],
  rules: RowRules,
): Promise<PromptItem[]> {
  const problems: Problem[] = [];
  const items: PromptItem[] = [];
  for (const source of sources) items.push(...(await readOne(source, rules, problems)));
  problems.push(...duplicateIds(items));
  if (problems.length === 0) return items;
  const order = sources.map(fileOf);
  problems.sort((a, b) => order.indexOf(a.file) - order.indexOf(b.file) || a.line - b.line);
  throw invalidInput(problems);
}

/** The error for problems in the input. */
export function invalidInput(problems: readonly Problem[]): ImgbatchError {
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  return new ImgbatchError("INVALID_INPUT", `${count} in the input; nothing was sent.`, {
    details: problems.map(formatProblem),
  });
}

async function readOne(source: PromptSource, rules: RowRules, problems: Problem[]): Promise<PromptItem[]> {
  const isStdin = source.name === STDIN;
  const file = fileOf(source);
  const reportLine = (line: number, field: string | null, message: string) => {
    problems.push({ file, line, field, message });
  };
  const path = resolve(source.cwd, source.name);
  let bytes: Uint8Array;
  try {
    bytes = isStdin ? await source.readStdin() : await readFile(path);
  } catch (error) {
    // Nothing is wrong with the input: the reading was interrupted.
    if (error instanceof ImgbatchError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    reportLine(1, null, code === "ENOENT" ? "there is no such file" : `cannot be read (${code})`);
    return [];
  }
  const { text, bad } = decodeText(bytes);
  const badLines = new Set(bad.map(({ line }) => line));
  for (const { line, message } of bad) reportLine(line, null, message);
  const found = problems.length;
  const rows = formatOf(file)(text, (line, field, message) => {
    if (!badLines.has(line)) reportLine(line, field, message);
  }).filter((row) => !badLines.has(row.line));
  if (rows.length === 0 && bad.length === 0 && problems.length === found)
    reportLine(1, null, "holds no prompts");

  const items: PromptItem[] = [];
  for (const { line, fields } of rows) {
    const report = (field: string | null, message: string) => reportLine(line, field, message);
    const { references: specs, ...row } = checkRow(fields, rules, report);
    const references: PromptReference[] = [];
    for (const spec of specs) {
      const reference = await loadReference(spec, isStdin ? source.cwd : dirname(path), rules.limits, report);
      if (reference !== null) references.push(reference);
    }
    items.push({ ...row, references, place: { file, line } });
  }
  return items;
}

function fileOf(source: PromptSource): string {
  return source.name === STDIN ? "<stdin>" : source.name;
}

/** An id may not be used twice in a run, nor be one that another line's images get. */
function duplicateIds(items: readonly PromptItem[]): Problem[] {
  const owners = new Map<string, PromptItem>();
  const problems: Problem[] = [];
  for (const item of items) {
    if (item.customId === null) continue;
    const ids = expandedCustomIds(item.customId, item.outputCount);
    const taken = ids.find((id) => owners.has(id));
    for (const id of ids) if (!owners.has(id)) owners.set(id, item);
    const other = taken === undefined ? undefined : owners.get(taken)?.place;
    if (other === undefined) continue;
    const message = `${JSON.stringify(taken)} is already used by ${other.file}:${other.line}; every image needs an id of its own`;
    problems.push({ ...item.place, field: "custom_id", message });
  }
  return problems;
}
