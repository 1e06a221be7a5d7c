import { didYouMean } from "../kernel/did-you-mean.ts";
import { formatBytes, truncateCodePoints } from "../kernel/text.ts";
import { captionIn, FIELDS, unknownField } from "./check-row.ts";
import {
  type ColumnRules,
  countedLines,
  isBlank,
  type Line,
  type ReadRows,
  type ReportLine,
} from "./lines.ts";
import { wholeNumberOf } from "./options.ts";
import { MOST_SHOWN_CHARS } from "./problems.ts";
import { placeholdersOf } from "./variables.ts";

/** A row of cells, with the line where it begins. */
interface CsvRecord {
  line: number;
  cells: string[];
}

const NOT_CLOSED = 'a quoted cell is not closed; end it with "';
const NOT_DOUBLED =
  'has text after the quote that closes a cell; write "" for a quote inside a quoted cell, and nothing after the last';
const CURLY =
  'the quotes around cells are curly (\u201c \u201d), which quote nothing: write straight ones (")';

/** The lines of a file, with a look at those that come later. */
class Lines {
  readonly #source: AsyncIterator<Line>;
  readonly #ahead: Line[] = [];

  constructor(source: AsyncIterable<Line>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Takes the next line; null at the end. */
  async next(): Promise<Line | null> {
    const line = await this.later(0);
    this.#ahead.shift();
    return line;
  }

  /** Returns the next line (0), or one after it, without taking it; null behind the end. */
  async later(index: number): Promise<Line | null> {
    while (this.#ahead.length <= index) {
      const next = await this.#source.next();
      if (next.done) return null;
      this.#ahead.push(next.value);
    }
    return this.#ahead[index] ?? null;
  }

  /** Ends the reading, so that the file is closed. */
  async end(): Promise<void> {
    await this.#source.return?.();
  }
}

/** How the cells of a table are written. */
interface Layout {
  separator: string;
  /** A longer record ends the reading: mostly its quote is not closed. */
  maxBytes: number;
  /** A quote is a text's own unless it closes where a cell ends, as in tables with tabs. */
  isLoose: boolean;
  /** The number of columns; null in the first row. */
  width: number | null;
}

/**
 * Splits lines into the records of a table. Cells may be quoted, and then hold separators, line breaks and doubled
 * quotes (RFC 4180). A quote counts at the beginning of a cell only, behind blanks too: a prompt without quotes around it may
 * hold some. Blanks after the closing quote are dropped. Blank lines between records are skipped, records with a damaged
 * line left out. Libraries for CSV count bytes, not lines: the adapter of csv-parse took 138 lines, and Node's streams, which
 * a browser does not have.
 */
async function* readRecords(
  lines: Lines,
  layout: Layout,
  report: ReportLine,
): AsyncGenerator<CsvRecord, void, undefined> {
  let open: OpenRecord | null = null;
  for (let line = await lines.next(); line !== null; line = await lines.next()) {
    if (open === null && isBlank(line.text) && !line.text.includes(layout.separator)) continue;
    open ??= {
      line: line.number,
      cells: [],
      quoted: null,
      bytes: 0,
      isDamaged: false,
      isDoubtful: false,
      hasText: false,
    };
    open.bytes += line.bytes + 1;
    if (line.problem !== null) open.isDamaged = true;
    else if (!isBlank(line.text)) open.hasText = true;
    await addLine(open, line.text, { layout, lines });
    if (open.quoted === null) {
      if (open.isDoubtful && !open.isDamaged) report(open.line, null, NOT_DOUBLED);
      if (!open.isDoubtful && !open.isDamaged) yield { line: open.line, cells: open.cells };
      open = null;
    } else if (open.bytes > layout.maxBytes) {
      report(open.line, null, `is longer than ${formatBytes(layout.maxBytes)}: ${NOT_CLOSED}`);
      return;
    }
  }
  if (open?.hasText) report(open.line, null, NOT_CLOSED);
}

/** A record whose last line has not come yet. */
interface OpenRecord extends CsvRecord {
  /** The beginning of a quoted cell that goes on in the next line; null outside of quotes. */
  quoted: string | null;
  bytes: number;
  /** One of its lines has a problem of its own. */
  isDamaged: boolean;
  /** Text follows a closing quote. */
  isDoubtful: boolean;
  /** One of its lines has text and no problem. */
  hasText: boolean;
}

async function addLine(
  record: OpenRecord,
  line: string,
  { layout, lines }: { layout: Layout; lines: Lines },
): Promise<void> {
  const { separator, isLoose } = layout;
  const end = endOf(line);
  let at = 0;
  for (;;) {
    const quote: number = record.quoted === null ? quoteAt(line, at, separator) : at - 1;
    const isQuoted =
      quote >= 0 && (!isLoose || record.quoted !== null || (await closes(line, quote, layout, lines)));
    if (record.quoted === null && !isQuoted) {
      const next = endOfCell(line, at, separator);
      record.cells.push(line.slice(at, next));
      at = next;
    } else {
      const closed = addQuoted(record, line, quote + 1);
      if (closed === null) return;
      at = endOfCell(line, closed, separator);
      if (!isBlank(line.slice(closed, at))) record.isDoubtful = true;
    }
    if (at === end) return;
    at += separator.length;
  }
}

/** Outside of quotes, the carriage return belongs to the line break. */
function endOf(line: string): number {
  return line.endsWith("\r") ? line.length - 1 : line.length;
}

function endOfCell(line: string, from: number, separator: string): number {
  const at = line.indexOf(separator, from);
  return at < 0 ? endOf(line) : at;
}

/** Returns the offset of the quote that begins a cell, behind blanks too; -1 when it begins with something else. */
function quoteAt(line: string, cell: number, separator: string): number {
  let at = cell;
  while (line[at] !== separator && /[^\S\r]/.test(line[at] ?? "")) at++;
  return line[at] === '"' ? at : -1;
}

/** A quoted cell that has more lines than this is none. */
const MOST_CELL_LINES = 1000;

/**
 * Whether a quote at the beginning of a cell also ends one: the first quote that is not doubled stands before a separator or
 * the end of its line. That may be a later line, unless a line before it has as many cells as the table has columns.
 */
async function closes(line: string, quote: number, layout: Layout, lines: Lines): Promise<boolean> {
  const { separator, width } = layout;
  const isEnd = (text: string, at: number) => isBlank(text.slice(at + 1, endOfCell(text, at + 1, separator)));
  const isRow = (text: string) => text.split(separator).length === width;
  const inLine = closingQuote(line, quote + 1);
  if (inLine >= 0) return isEnd(line, inLine);
  for (let index = 0; width !== null && index < MOST_CELL_LINES; index++) {
    const later = await lines.later(index);
    if (later === null || later.problem !== null) return false;
    const { text } = later;
    const closing = closingQuote(text, 0);
    // A line that ends a cell of the last column of another one is itself no whole row, nor are both that a cell spans.
    if (isRow(text) && (closing < 0 || isRow(line))) return false;
    if (closing >= 0) return isEnd(text, closing);
  }
  return false;
}

/** Returns the offset of the first quote that is not doubled; -1 for none. */
function closingQuote(text: string, from: number): number {
  let at = text.indexOf('"', from);
  while (at >= 0 && text[at + 1] === '"') at = text.indexOf('"', at + 2);
  return at;
}

/** Reads a quoted cell on, from `at`. Returns the offset behind its closing quote; null when the line has none. */
function addQuoted(record: OpenRecord, line: string, at: number): number | null {
  const text = record.quoted ?? "";
  const quote = closingQuote(line, at);
  const add = (end?: number) => text + line.slice(at, end).replaceAll('""', '"');
  record.quoted = quote < 0 ? `${add()}\n` : null;
  if (quote < 0) return null;
  record.cells.push(add(quote));
  return quote + 1;
}

/** The report for a column with cells and without a name. */
const NAMELESS = "a column has cells but no name; name it or remove it";

const SEPARATORS = [",", ";", "\t", "|"];
/** Spreadsheets take the separator from such a first line. */
const SEPARATOR_LINE = /^"?sep=(\\t|[^"])"?\s*$/i;

/**
 * `.csv` and `.tsv`: the first row names the fields, in any case. An empty or missing cell is an absent field; several
 * reference images in a cell are separated by `;`. A first row with `;` and no comma separates the cells of a `.csv` by
 * `;`, as spreadsheets do where the comma is the decimal point; a line `sep=;` before it names the separator. Rows of blank
 * cells are skipped.
 */
export function readTable(usual: string, maxBytes: number): ReadRows {
  return async function* (source, report, rules, note) {
    const lines = new Lines(source);
    try {
      const layout: Layout = {
        separator: await readSeparator(lines, usual),
        maxBytes,
        isLoose: usual === "\t",
        width: null,
      };
      let columns: Columns | null = null;
      const skipped: number[] = [];
      for await (const record of readRecords(lines, layout, report)) {
        if (record.cells.every(isBlank)) {
          if (columns !== null) skipped.push(record.line);
        } else if (columns === null) {
          columns = readHeader(record, layout.separator, rules, report);
          if (columns === null) return;
          layout.width = record.cells.length;
        } else {
          const row = columns.rowOf(record);
          if (row === "blank") skipped.push(record.line);
          else if (row !== null) yield { line: record.line, ...row };
        }
      }
      if (skipped.length > 0) note(`${countedLines("row", skipped)} of blank cells, skipped`);
      if (columns?.hasIndex()) note("the first column has no name and only counts the rows: left out");
    } finally {
      await lines.end();
    }
  };
}

/** Returns what separates the cells. A line that only says so is taken. */
async function readSeparator(lines: Lines, usual: string): Promise<string> {
  let index = 0;
  let first = await lines.later(0);
  while (first !== null && isBlank(first.text)) first = await lines.later(++index);
  const text = first?.text ?? "";
  const [, named] = SEPARATOR_LINE.exec(text) ?? [];
  if (named === undefined) return usual === "," && !text.includes(",") && text.includes(";") ? ";" : usual;
  for (; index >= 0; index--) await lines.next();
  return named === "\\t" ? "\t" : named;
}

interface Columns {
  /** Null when the row does not fit, which is reported; `blank` when it has nothing but its number. */
  rowOf(
    record: CsvRecord,
  ): { fields: Record<string, unknown>; columns: Record<string, string> } | "blank" | null;
  /** Whether the first column counted the rows, and was left out. */
  hasIndex(): boolean;
}

/** Null when the first row does not name the columns, which is reported. */
function readHeader(
  { line, cells }: CsvRecord,
  separator: string,
  { isTaken, promptColumn = "prompt", idColumn, template }: ColumnRules,
  report: ReportLine,
): Columns | null {
  const typed = cells.map((cell) => cell.trim());
  const named = columnOf(typed, promptColumn);
  const isPlural = named < 0 && promptColumn === "prompt" && template === undefined;
  const prompts = isPlural ? columnOf(typed, "prompts") : named;
  const ids = idColumn === undefined ? -1 : columnOf(typed, idColumn);
  const names = typed.map((name, i) => {
    if (i === prompts) return "prompt";
    if (i === ids) return "custom_id";
    return FIELDS.includes(name.toLowerCase()) ? name.toLowerCase() : name;
  });
  // Beside the named columns, those that have our names by chance are the caller's own.
  const isOwn = (i: number) =>
    (names[i] === "prompt" && i !== prompts && promptColumn !== "prompt" && prompts >= 0) ||
    (names[i] === "custom_id" && i !== ids && idColumn !== undefined && ids >= 0);
  const known = names.map((name, i) => (isOwn(i) ? "" : name));
  const twice = known.filter((name, i) => name !== "" && known.indexOf(name) < i);
  for (const name of new Set(twice)) report(line, name, "is the name of two columns; remove or rename one");
  if (idColumn !== undefined && ids < 0) report(line, null, missingColumn(typed, separator, idColumn));
  if (prompts < 0 && (template === undefined || promptColumn !== "prompt")) {
    report(line, null, missingColumn(typed, separator, promptColumn));
    return null;
  }
  const reported = new Set<string>();
  const index = names[0] === "" ? new RowIndex() : null;
  return {
    hasIndex: () => index?.isIndex ?? false,
    rowOf: (record) => {
      if (typed.every((name, i) => name === record.cells[i]?.trim())) {
        report(record.line, null, "repeats the names of the columns; remove the line");
        return null;
      }
      while (record.cells.length > names.length && isBlank(record.cells.at(-1) ?? "")) record.cells.pop();
      if (record.cells.length > names.length) {
        const advice = record.cells.some((cell) => /^\s*[\u201c-\u201f\u00ab]/.test(cell))
          ? CURLY
          : "quote cells that hold the separator";
        const message = `has ${record.cells.length} cells but the first row names ${names.length}; ${advice}`;
        report(record.line, null, message);
        return null;
      }
      index?.add(record.cells[0] ?? "");
      if (index?.isIndex && record.cells.slice(1).every(isBlank)) return "blank";
      const fields: Record<string, unknown> = {};
      const columns: Record<string, string> = {};
      const used = placeholdersOf(template ?? record.cells[prompts]);
      for (const [i, name] of names.entries()) {
        const cell = record.cells[i] ?? "";
        if (name !== "") columns[name] = cell.trim();
        if (i === prompts && template !== undefined) columns[typed[i] ?? name] = cell.trim();
        const value = cellValue(name, cell);
        if (value === undefined || (i === 0 && index?.isIndex)) continue;
        if (isOwn(i)) fields.metadata = { ...(fields.metadata as object), [name]: cell.trim() };
        else if (isTaken(name) || used.has(name)) fields[name] = value;
        // Reported once, at the line of the names: the column is wrong, not the row.
        else if (!reported.has(name)) {
          reported.add(name);
          reportColumn(line, name, report);
        }
      }
      if (ids >= 0 && fields.custom_id === undefined)
        report(record.line, typed[ids] ?? "", "is empty; give it an id, or remove the row");
      return { fields, columns };
    },
  };
}

/** The first column of a table when it has no name: the numbers of the rows, from 0 or 1, as programs for data write them. */
class RowIndex {
  #next: number | null = null;
  #isOther = false;

  get isIndex(): boolean {
    return !this.#isOther && this.#next !== null;
  }

  add(cell: string): void {
    const text = cell.trim();
    const number = /^\d{1,9}(\.0+)?$/.test(text) ? Number(text) : Number.NaN;
    if (this.#next === null && number !== 0 && number !== 1) this.#isOther = true;
    if (this.#next !== null && number !== this.#next) this.#isOther = true;
    this.#next = number + 1;
  }
}

/** Returns the number of a column; -1 for none. Its name is looked for as it is written, then in any case. */
function columnOf(names: readonly string[], wanted: string): number {
  const exact = names.indexOf(wanted);
  return exact >= 0 ? exact : names.findIndex((name) => name.toLowerCase() === wanted.toLowerCase());
}

function reportColumn(line: number, name: string, report: ReportLine): void {
  if (name === "") report(line, null, NAMELESS);
  else report(line, ...unknownField(name));
}

const MOST_NAMES = 12;

/** The report for a first row without the column of the prompts, with what its writer may have meant. */
function missingColumn(names: readonly string[], separator: string, wanted: string): string {
  const isNamed = wanted !== "prompt";
  const message = isNamed
    ? `there is no column ${JSON.stringify(truncateCodePoints(wanted, MOST_SHOWN_CHARS, "…"))}`
    : "the first row must name the columns, and one of them must be prompt";
  if (names.some((name) => /^[\u201c-\u201f\u00ab]/.test(name))) return `${message}; ${CURLY}`;
  const meant = names.find((name) => didYouMean(name, [wanted]) !== null);
  if (meant !== undefined && !isNamed) return `${message}; did you mean prompt by ${JSON.stringify(meant)}?`;
  const [only = ""] = names;
  const other = SEPARATORS.find((each) => each !== separator && only.split(each).includes(wanted));
  const right = separator === "\t" ? "tabs" : "commas";
  if (names.length === 1 && other !== undefined)
    return `${message}; the cells are separated by ${JSON.stringify(other)}: save the file with ${right}`;
  const known = names.filter((name) => name !== "");
  if (isNamed) {
    const shown = known.slice(0, MOST_NAMES).map((name) => truncateCodePoints(name, MOST_SHOWN_CHARS, "…"));
    const near = meant === undefined ? "the" : `did you mean ${meant}? The`;
    return `${message}; ${near} first row names ${shown.join(", ")}${known.length > MOST_NAMES ? ", …" : ""}`;
  }
  const caption = captionIn(known);
  if (caption !== undefined) return `${message}; if it is ${caption}: --prompt-column ${caption}`;
  const own = known.find((name) => !FIELDS.includes(name));
  if (names.length === 1 || own === undefined) return message;
  return `${message}; name it with --prompt-column, or write the prompt: --prompt "a picture of {{${own}}}"`;
}

function cellValue(name: string, cell: string): unknown {
  const text = cell.trim();
  if (name === "prompt") return cell;
  if (isBlank(text)) return undefined;
  // A cell is no object: the column is one of the caller's own.
  if (name === "metadata") return { metadata: text };
  if (name === "output_count") return wholeNumberOf(text) ?? text;
  if (name === "reference_images")
    return text
      .split(/;(?!base64,)/)
      .map((path) => path.trim())
      .filter((path) => path !== "");
  return text;
}
