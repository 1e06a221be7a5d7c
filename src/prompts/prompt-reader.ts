import { visit } from "jsonc-parser";
import { expandedCustomIds } from "../contract/limits.ts";
import { parseJson, TooDeepJson } from "../kernel/json.ts";
import { counted, truncateCodePoints } from "../kernel/text.ts";
import { type CheckedRow, checkRow, isTaken, type RowRules } from "./check-row.ts";
import {
  BAD_TEXT,
  countedLines,
  FORMAT_NAMES,
  type FormatName,
  inspectFile,
  isBlank,
  type ReadRows,
  type ReportLine,
  type Row,
  readLines,
} from "./lines.ts";
import { optionsOf } from "./options.ts";
import { foreignFields, fromBatchLine, textDamages, textOptions } from "./other-programs.ts";
import { type FileLine, Problems, type Report } from "./problems.ts";
import { readTable } from "./table.ts";
import { Expander, type VariableRules } from "./variables.ts";

export interface ReaderRules extends RowRules, VariableRules {
  /**
   * The flags that give a field to lines without it, by the field. A flag is reported when every line has another value of its
   * own: its writer took it for the last word. Default: none.
   */
  flags?: FieldFlags | undefined;
}

/** Flags with their values, as `CheckedRow` has them, by the field of a line. */
export type FieldFlags = Readonly<Record<string, { flag: string; value: unknown }>>;

/**
 * Reads and checks prompt files, one after the other, line by line. An id may stand once in all of them. The same rules
 * hold wherever prompts are read, so this needs no file system: the caller has the bytes, and finds the reference images.
 */
export class PromptReader {
  readonly problems = new Problems();
  readonly #rules: ReaderRules;
  /** The line that uses each id, numbered ids included. */
  readonly #owners = new Map<string, FileLine>();
  readonly #notes: string[] = [];
  /** Columns and words that other programs would act on, in words, with the number of rows that have them. */
  readonly #foreignColumns = new Map<string, number>();
  readonly #foreignText = new Map<string, number>();
  /** Traces of a wrong export, in words, with the number of rows that have them. */
  readonly #damages = new Map<string, number>();
  /** Columns that look like ids, of rows without an id. */
  readonly #idLike = new Set<string>();
  /** A file has columns or fields. */
  #hasNames = false;
  /** The fields that some line has from a flag. */
  readonly #flagged = new Set<string>();
  /** `{{prompt}}` stands for something. */
  #usesPrompt = false;
  /** Rows with a prompt of their own, and those that are nothing else. */
  #prompted = 0;
  #bare = 0;
  readonly #expander: Expander;
  #rowCount = 0;
  /** Characters of prompts that are too long. */
  #excessChars = 0;

  constructor(rules: ReaderRules) {
    this.#rules = rules;
    this.#expander = new Expander(rules);
  }

  /** What the variables of the files came to: for people. */
  get remarks(): string[] {
    const { summary } = this;
    return summary === null ? this.notes : [summary, ...this.notes];
  }

  /** `12 lines × 3 × 4 = 144 images`; null if no line has a list. */
  get summary(): string | null {
    return this.#expander.summary;
  }

  /** What was left out, and variables that stayed text. */
  get notes(): string[] {
    const ids = [...this.#idLike].map(
      (name) =>
        `${name} is kept as metadata; to name the images by it, call it custom_id, or use --id-column ${name}`,
    );
    const columns = [...this.#foreignColumns].map(
      ([what, rows]) => `${what}; the column is kept as metadata (${counted(rows, "row")})`,
    );
    const stays = (what: string, counts: ReadonlyMap<string, number>) => {
      const kinds = [...counts].map(([kind, lines]) => `${kind} in ${counted(lines, "line")}`);
      return kinds.length === 0 ? [] : [`${what} of the prompt: ${kinds.join("; ")}`];
    };
    const text = stays("options of other programs stay text", this.#foreignText);
    const damages = stays("what looks like a wrong export stays text", this.#damages);
    return [...this.#notes, ...columns, ...text, ...damages, ...ids, ...this.#expander.notes];
  }

  /** Whether so much of the input is too long that the rest is not read: its writer took another limit for the right one. */
  get isCut(): boolean {
    return this.#excessChars > MOST_EXCESS_CHARS;
  }

  /**
   * Yields the rows of a file, also those with problems, each with the function that reports a problem of it, such as one of its
   * reference images. Its name says its format, unless one is named. Throws only what `bytes` throws.
   */
  async *read(
    file: string,
    bytes: AsyncIterable<Uint8Array>,
    named: FormatName | null = null,
  ): AsyncGenerator<{ row: CheckedRow; report: Report }, void, undefined> {
    const { problems } = this;
    const reportLine = (line: number | null, field: string | null, message: string) =>
      problems.add({ file, line }, field, message);
    const before = problems.count;
    const format = formatOf(file, named);
    const read = FORMATS[format];
    // A JSON line may hold images: it may be as long as a request.
    const maxLineBytes = format === "jsonl" ? this.#rules.limits.createBodyBytes : TEXT_LINE_BYTES;
    const inspected = await inspectFile(bytes);
    if (inspected.problem !== null) {
      reportLine(null, null, inspected.problem);
      return;
    }
    const lines = async function* () {
      const undecodable: number[] = [];
      try {
        for await (const line of readLines(inspected.bytes, maxLineBytes)) {
          if (line.problem === BAD_TEXT) undecodable.push(line.number);
          else if (line.problem !== null) reportLine(line.number, null, line.problem);
          yield line;
        }
      } finally {
        // The program that wrote one of these lines has written all of them.
        const [first, ...others] = undecodable;
        const also = others.length === 0 ? "" : ` (also ${counted(others.length, "other line")})`;
        if (first !== undefined) reportLine(first, null, `${BAD_TEXT}${also}; save the file as UTF-8`);
      }
    };
    let rowCount = 0;
    const { template, promptColumn, idColumn, isStrict = false } = this.#rules;
    const columnRules = {
      isTaken: (name: string) => isTaken(name, isStrict),
      template,
      promptColumn,
      idColumn,
    };
    const isTable = format === "csv" || format === "tsv";
    this.#hasNames ||= format !== "txt";
    const note = (remark: string) => this.#notes.push(`${file}: ${remark}`);
    const rows: AsyncIterable<Row> = read(lines(), reportLine, columnRules, note);
    for await (const source of rows) {
      rowCount++;
      this.#rowCount++;
      const fileLine = { file, line: source.line };
      const report: Report = (field, message) => problems.add(fileLine, field, message);
      const number = this.#rowCount;
      if (!isBlank(String(source.fields.prompt ?? ""))) this.#prompted++;
      if (format === "txt") this.#bare++;
      let isFirst = true;
      const place = { number, fileLine, isTable };
      for await (const { fields, variant, used } of this.#expander.expand(source, place, report)) {
        if (isFirst) this.#noteForeign({ fields, used, isTable, isStrict, fileLine }, report);
        isFirst = false;
        if (used.has("prompt")) this.#usesPrompt = true;
        const row = { ...checkRow(fields, this.#rules, report), number, variant, fileLine };
        this.#noteFlags(fields, row);
        for (const name of Object.keys(row.metadata ?? {})) {
          if (!this.#expander.hasUsed(name)) this.#rules.kept?.add(name);
          if (row.customId === null && idColumn === undefined && /^(id|sku)$/i.test(name))
            this.#idLike.add(name);
        }
        yield { row, report };
        if (row.prompt.length > this.#rules.limits.promptChars) this.#excessChars += row.prompt.length;
        if (this.isCut) {
          problems.cut("the lines behind it were not read: make all prompts short enough first");
          return;
        }
        if (row.customId !== null) this.#claimIds(row.customId, row.outputCount, fileLine);
      }
    }
    if (rowCount === 0 && problems.count === before) reportLine(null, null, "holds no prompts");
  }

  /** Ends the reading of these files, and returns all problems. */
  finish(): Problems {
    if (this.isCut) return this.problems;
    for (const name of this.#expander.idle) {
      const use = name === "image" ? "give a file with prompts" : `write {{${name}}} in a prompt`;
      this.problems.add({ file: "--var", line: null }, name, `no line uses it; ${use}, or leave it out`);
    }
    this.#expander.reportLacking(this.problems);
    const { promptColumn, idColumn } = this.#rules;
    const columnFlags = { "--prompt-column": promptColumn, "--id-column": idColumn };
    for (const [flag, name] of Object.entries(columnFlags))
      if (name !== undefined && !this.#hasNames && this.#rowCount > 0)
        this.problems.add({ file: flag, line: null }, null, "a .txt file has no columns; leave it out");
    // A line that could not be read may be the one that needs a flag.
    if (this.problems.count === 0 && this.#rowCount > 0) this.#reportIdleFlags();
    return this.problems;
  }

  /** Notes the fields that a row has from a flag, or as the flag says. */
  #noteFlags(fields: Record<string, unknown>, row: CheckedRow): void {
    const own: Record<string, unknown> = {
      ...optionsOf(row),
      output_count: row.outputCount,
      model: row.model,
    };
    for (const [field, { value }] of Object.entries(this.#rules.flags ?? {})) {
      const given = fields[field] ?? "";
      const isNone = given === "" || (Array.isArray(given) && given.length === 0);
      if (isNone || own[field] === value) this.#flagged.add(field);
    }
  }

  /** Reports the flags that change nothing about these files. */
  #reportIdleFlags(): void {
    const { flags = {}, template, promptColumn } = this.#rules;
    const report = (flag: string, message: string) =>
      this.problems.add({ file: flag, line: null }, null, message);
    for (const [field, { flag }] of Object.entries(flags))
      if (!this.#flagged.has(field))
        report(flag, `every line has its own ${field}, so it has no effect; leave it out`);
    if (template === undefined || this.#usesPrompt) return;
    if (promptColumn !== undefined)
      report("--prompt-column", "--prompt has no {{prompt}}, so it has no effect; leave one of them out");
    else if (this.#bare > 0)
      report("--prompt", "has no {{prompt}}; write it where the line of a .txt file belongs");
    else if (this.#prompted > 0)
      this.#notes.push(
        `--prompt has no {{prompt}}: it replaces ${counted(this.#prompted, "prompt")} of the lines`,
      );
  }

  /**
   * Looks for what other programs would act on, and this one does not: a field of a JSON line is an error, since its writer meant
   * it; a column, which may be anybody's, and words in the prompt get a note with their count.
   */
  #noteForeign(
    {
      fields,
      used,
      isTable,
      isStrict,
      fileLine,
    }: {
      fields: Record<string, unknown>;
      used: ReadonlySet<string>;
      isTable: boolean;
      isStrict: boolean;
      fileLine: FileLine;
    },
    report: Report,
  ): void {
    const count = (counts: Map<string, number>, what: string) =>
      counts.set(what, (counts.get(what) ?? 0) + 1);
    for (const { name, advice } of isStrict ? [] : foreignFields(fields)) {
      if (used.has(name)) continue;
      if (isTable) count(this.#foreignColumns, `${fileLine.file}: ${name}: ${advice}`);
      else report(name, `${advice}; or keep it for the results: "metadata": {${JSON.stringify(name)}: …}`);
    }
    if (typeof fields.prompt !== "string") return;
    for (const { kind, way } of textOptions(fields.prompt))
      if (isStrict) report("prompt", `${kind} is for another program, and stays text here; ours: ${way}`);
      else count(this.#foreignText, `${kind} (ours: ${way})`);
    for (const { kind, from } of textDamages(fields.prompt))
      if (isStrict) report("prompt", `holds text ${kind} (${from}); write the characters themselves`);
      else count(this.#damages, `${kind} (${from})`);
  }

  /** Reports an id that another line uses, or that an image of another line gets. */
  #claimIds(customId: string, count: number, fileLine: FileLine): void {
    const owners = this.#owners;
    const ids = expandedCustomIds(customId, count);
    const taken = ids.find((id) => owners.has(id));
    const other = taken === undefined ? undefined : owners.get(taken);
    for (const id of ids) if (!owners.has(id)) owners.set(id, fileLine);
    if (other === undefined) return;
    const message = `${JSON.stringify(taken)} is already used by ${other.file}:${other.line}; every image needs an id of its own`;
    this.problems.add(fileLine, "custom_id", message);
  }
}

/** Of too long prompts. Files of gigabytes are read for minutes, and every line has the same problem. */
const MOST_EXCESS_CHARS = 1_000_000;

const SHAPE = 'write one object a line, like {"prompt": "a red bicycle"}';

/** `.jsonl` and standard input: every line is a JSON object, or blank, or a comment that begins with `//`. */
const readJsonl: ReadRows = async function* (lines, report, { promptColumn, idColumn, template }) {
  let isFirst = true;
  /** The first line when it is no JSON: the next one tells whether the file is in another form. */
  let doubtful: { line: number; text: string; problem: string } | null = null;
  const prompts = new NamedField(promptColumn, "prompt", "say what the image shows");
  const ids = new NamedField(idColumn, "custom_id", "give it an id");
  for await (const { number: line, text, problem } of lines) {
    if (problem !== null || isBlank(text) || isComment(text)) continue;
    if (isFirst && text.trimStart().startsWith("[")) {
      report(null, null, `is a JSON array; ${SHAPE} (jq -c '.[]' does that)`);
      return;
    }
    let value: unknown;
    try {
      value = parseJson(text);
    } catch (error) {
      if (error instanceof TooDeepJson) {
        report(line, null, error.message);
        isFirst = false;
        continue;
      }
      const wrong = `is not valid JSON (${reason(error)}); ${SHAPE}`;
      // Lines that all begin as objects have a mistake each.
      if (doubtful !== null && !/^\s*\{.*\}/.test(doubtful.text)) {
        report(null, null, otherForm(doubtful.text));
        return;
      }
      if (doubtful !== null) report(doubtful.line, null, doubtful.problem);
      doubtful = null;
      if (isFirst) doubtful = { line, text, problem: wrong };
      else report(line, null, wrong);
      isFirst = false;
      continue;
    }
    isFirst = false;
    if (doubtful !== null) report(doubtful.line, null, doubtful.problem);
    doubtful = null;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      for (const key of repeatedKeys(text))
        report(line, key, "appears more than once; keep one, or write a line for each");
      const given = value as Record<string, unknown>;
      const asked = fromBatchLine(given, (field, message) => report(line, field, message));
      if (asked !== null) {
        yield { line, fields: asked };
        continue;
      }
      const columns = textsOf(given);
      const fields = ids.rename(prompts.rename(given, line), line);
      if (fields.prompt === undefined && promptColumn !== undefined && template === undefined) continue;
      yield { line, fields, columns };
    } else {
      report(line, null, `is ${nameOf(value)}, not an object; ${SHAPE}`);
    }
  }
  if (doubtful !== null) report(doubtful.line, null, doubtful.problem);
  if (template === undefined) prompts.reportMissing(report);
  ids.reportMissing(report);
};

/** The forms of text that are not read, by how their first line begins. */
const FORMS: readonly { begins: RegExp; form: string; way?: string }[] = [
  { begins: /^\s*\{\\rtf/, form: "a text of an office program", way: "save it as plain text (UTF-8)" },
  { begins: /^\s*\{/, form: "JSON over several lines", way: `${SHAPE} (jq -c . FILE does that)` },
  { begins: /^\s*</, form: "HTML or XML" },
  {
    begins: /^(---|%YAML|\s*(- +)?["']?[\w-]+["']?:(\s|$))/,
    form: "YAML",
    way: `${SHAPE} (yq -o=json -I=0 does that)`,
  },
  { begins: /^(#{1,6} |[*-] |\d+\. |```|\|)/, form: "Markdown", way: "write a prompt a line in a .txt file" },
];

/** Names the form of a file that is not JSON lines, by its first line, and the way out. */
function otherForm(first: string): string {
  const known = FORMS.find(({ begins }) => begins.test(first));
  const plain = "for a prompt a line use .txt or --format txt, for a table .csv or --format csv";
  if (known === undefined) return `is not JSON lines; ${plain}`;
  return `is ${known.form}, which is not read; ${known.way ?? plain}`;
}

/** The texts and numbers among the fields of a line. Null is an empty one. */
function textsOf(fields: Record<string, unknown>): Record<string, string> {
  const isText = (value: unknown) => value === null || typeof value === "string" || typeof value === "number";
  const texts = Object.entries(fields).filter(([, value]) => isText(value));
  return Object.fromEntries(texts.map(([name, value]) => [name, value === null ? "" : String(value)]));
}

/** A field of JSON lines that stands for one of ours. */
class NamedField {
  readonly #name: string | undefined;
  readonly #ours: string;
  readonly #advice: string;
  readonly #missing: number[] = [];
  readonly #others = new Set<string>();
  #isKnown = false;

  /** Without a name, or with the name of our own field, nothing is renamed. */
  constructor(name: string | undefined, ours: string, advice: string) {
    this.#name = name === ours ? undefined : name;
    this.#ours = ours;
    this.#advice = advice;
  }

  /** Returns the fields with ours. A field that has our name by chance is kept as metadata. */
  rename(fields: Record<string, unknown>, line: number): Record<string, unknown> {
    const name = this.#name;
    if (name === undefined) return fields;
    const { [name]: value = null, [this.#ours]: other, ...others } = fields;
    if (value === null) {
      this.#missing.push(line);
      if (this.#others.size < MOST_NAMES) for (const each of Object.keys(fields)) this.#others.add(each);
    } else this.#isKnown = true;
    const { metadata: given = {} } = fields;
    const metadata = typeof given === "object" ? { ...given, [this.#ours]: other } : given;
    const isId = this.#ours === "custom_id" && typeof value === "number";
    return {
      ...others,
      ...(value === null ? {} : { [this.#ours]: isId ? String(value) : value }),
      ...(other === undefined ? {} : { metadata }),
    };
  }

  /** Reports the lines without the field: once when no line has it. */
  reportMissing(report: ReportLine): void {
    const name = this.#name ?? "";
    const [first] = this.#missing;
    if (first === undefined) return;
    if (this.#isKnown)
      for (const line of this.#missing) report(line, name, `is missing; ${this.#advice}, or remove the line`);
    else {
      const names = [...this.#others].slice(0, MOST_NAMES).map((each) => truncateCodePoints(each, 40, "…"));
      report(
        null,
        null,
        `no line has the field ${JSON.stringify(truncateCodePoints(name, 40, "…"))}; the fields are ${names.join(", ")}`,
      );
    }
  }
}

const MOST_NAMES = 12;

function isComment(text: string): boolean {
  return text.trimStart().startsWith("//");
}

function reason(error: unknown): string {
  return truncateCodePoints(error instanceof Error ? error.message : String(error), 120, "…");
}

function nameOf(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  return value === null ? "null" : `a ${typeof value}`;
}

/**
 * `.txt`: every line that is not blank is a prompt, also one that begins with `//`. A line that begins with `#` and a blank is a
 * comment or a heading, as in a list.
 */
const readPlainLines: ReadRows = async function* (lines, report, _, note) {
  let isFirst = true;
  const comments: number[] = [];
  for await (const { number: line, text: prompt, problem } of lines) {
    if (problem !== null || isBlank(prompt)) continue;
    if (/^\s*#{1,6}(?:\s|$)/.test(prompt)) {
      comments.push(line);
      continue;
    }
    const other = isFirst ? formOfText(prompt) : null;
    if (other !== null) {
      report(null, null, other);
      return;
    }
    isFirst = false;
    const [end] = LINE_ENDS.exec(prompt.trim()) ?? [];
    if (end !== undefined) {
      const code = (end.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
      const message = `holds U+${code}, which ends a line in other programs; write each prompt in a line of its own`;
      report(line, null, message);
    } else if (SETTINGS.test(prompt))
      report(line, null, "holds settings of another program, not a prompt; remove the line");
    else yield { line, fields: { prompt } };
  }
  if (comments.length === 0) return;
  const what = countedLines("comment", comments);
  if (isFirst) report(null, null, `holds nothing but ${what}; write prompts without # in front`);
  else note(`${what} with # in front, skipped`);
};

/** What ends a line, a page or a record elsewhere. */
const LINE_ENDS = /[\r\v\f\x85\u2028\u2029]/;
/** The lines behind a prompt in a file of Stable Diffusion's programs. */
const SETTINGS = /^\s*(?:Negative prompt:|Steps: \d+, )/;

/** Says what form a file of plain lines has in truth, by its first line, and the way out; null for a prompt a line. */
function formOfText(first: string): string | null {
  // An object without these is a prompt that is written as JSON.
  if (/^\s*\{.*"(?:prompts?|caption|text|custom_id|messages|request|body)"\s*:.*\}\s*$/.test(first))
    return "holds JSON lines, not a prompt a line; call it .jsonl, or use --format jsonl";
  if (/^\s*(?:[[{]|\w+\s*=\s*\[)\s*$|^\s*\[\s*["{].*[\],]\s*$/.test(first))
    return `holds JSON or code, not a prompt a line; ${SHAPE} in a .jsonl file`;
  if (/^\s*(?:\{\\rtf|<!doctype\b|<html\b|<\?xml\b)/i.test(first))
    return `is ${/rtf/.test(first) ? "a text of an office program" : "HTML or XML"}; save it as plain text, a prompt a line`;
  if (/^\s*(?:%YAML|- +["']?prompt["']?:|["']?prompts["']?:\s*$)/i.test(first))
    return `is YAML, not a prompt a line; ${SHAPE} in a .jsonl file`;
  return isHeader(first)
    ? `is a table, not a prompt a line: its first line names columns; use --format ${first.includes("\t") ? "tsv" : "csv"}, or remove that line`
    : null;
}

/** Whether a line names the columns of a table: some short names, and the prompt is among them. */
function isHeader(line: string): boolean {
  const names = line
    .trim()
    .split(["\t", ";", "|"].find((each) => line.trim().includes(each)) ?? ",")
    .map((name) => name.trim().replace(/^"(.*)"$/, "$1"));
  return (
    names.some((name) => /^prompts?$/i.test(name)) &&
    names.every((name) => /^(?:[\w.-]{1,20} ?){0,2}$/.test(name))
  );
}

/** Far more than the longest prompt with all that belongs to it. */
const TEXT_LINE_BYTES = 4 * 1024 * 1024;

const FORMATS: Record<FormatName, ReadRows> = {
  jsonl: readJsonl,
  txt: readPlainLines,
  csv: readTable(",", TEXT_LINE_BYTES),
  tsv: readTable("\t", TEXT_LINE_BYTES),
};

/** Returns the format of a file: the named one, else by its extension, else JSON lines. */
function formatOf(fileName: string, named: FormatName | null): FormatName {
  const extension = /[^/\\]\.([^./\\]+)$/.exec(fileName)?.[1]?.toLowerCase();
  return named ?? FORMAT_NAMES.find((each) => each === extension) ?? "jsonl";
}

/**
 * Returns the keys that a JSON object has more than once, each key once. The objects inside it are not looked at. `text`
 * must be the valid JSON text of an object. A parser alone would keep only the last value of such a key.
 */
export function repeatedKeys(text: string): string[] {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  let depth = 0;
  visit(text, {
    // False leaves out everything inside an inner object.
    onObjectBegin: () => ++depth === 1,
    onObjectEnd: () => {
      depth--;
    },
    onObjectProperty: (key) => {
      if (seen.has(key)) repeated.add(key);
      seen.add(key);
    },
  });
  return [...repeated];
}
