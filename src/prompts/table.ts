import { didYouMean } from "../kernel/did-you-mean.ts";
import { formatBytes } from "../kernel/text.ts";
import { FIELDS, unknownField } from "./check-row.ts";
import { type ColumnRules, isBlank, type Line, type ReadRows, type ReportLine } from "./lines.ts";
import { placeholdersOf } from "./variables.ts";

/** A row of cells, with the line where it begins. */
interface CsvRecord {
  line: number;
  cells: string[];
}

const NOT_CLOSED = 'a quoted cell is not closed; end it with "';
const NOT_DOUBLED =
  'has text after the quote that closes a cell; write "" for a quote inside a quoted cell, and nothing after the last';

/**
 * Splits lines into the records of a table. Cells may be quoted, and then hold separators, line breaks and doubled
 * quotes (RFC 4180). A quote counts at the beginning of a cell only: a prompt without quotes around it may hold some.
 * Blanks after the closing quote are dropped. Blank lines between records are skipped, records with a damaged line left
 * out. A record of more than `maxBytes` ends the reading: mostly its quote is not closed. Libraries for CSV count bytes, not
 * lines: the adapter of csv-parse took 138 lines, and Node's streams, which a browser does not have.
 */
async function* readRecords(
  lines: AsyncIterable<Line>,
  { separator, maxBytes }: { separator: string; maxBytes: number },
  report: ReportLine,
): AsyncGenerator<CsvRecord, void, undefined> {
  let open: OpenRecord | null = null;
  for await (const line of lines) {
    if (open === null && isBlank(line.text)) continue;
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
    addLine(open, line.text, separator);
    if (open.quoted === null) {
      if (open.isDoubtful && !open.isDamaged) report(open.line, null, NOT_DOUBLED);
      if (!open.isDoubtful && !open.isDamaged) yield { line: open.line, cells: open.cells };
      open = null;
    } else if (open.bytes > maxBytes) {
      report(open.line, null, `is longer than ${formatBytes(maxBytes)}: ${NOT_CLOSED}`);
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

function addLine(record: OpenRecord, line: string, separator: string): void {
  // Outside of quotes, the carriage return belongs to the line break.
  const end = line.endsWith("\r") ? line.length - 1 : line.length;
  const endOfCell = (from: number) => {
    const at = line.indexOf(separator, from);
    return at < 0 ? end : at;
  };
  let at = 0;
  for (;;) {
    if (record.quoted === null && line[at] !== '"') {
      const next = endOfCell(at);
      record.cells.push(line.slice(at, next));
      at = next;
    } else {
      const closed = addQuoted(record, line, record.quoted === null ? at + 1 : at);
      if (closed === null) return;
      at = endOfCell(closed);
      if (!isBlank(line.slice(closed, at))) record.isDoubtful = true;
    }
    if (at === end) return;
    at += separator.length;
  }
}

/** Reads a quoted cell on, from `at`. Returns the offset behind its closing quote; null when the line has none. */
function addQuoted(record: OpenRecord, line: string, at: number): number | null {
  let text = record.quoted ?? "";
  let from = at;
  for (;;) {
    const quote = line.indexOf('"', from);
    if (quote < 0) {
      record.quoted = `${text}${line.slice(from)}\n`;
      return null;
    }
    text += line.slice(from, quote);
    if (line[quote + 1] !== '"') {
      record.quoted = null;
      record.cells.push(text);
      return quote + 1;
    }
    text += '"';
    from = quote + 2;
  }
}

/** The report for a column with cells and without a name. */
const NAMELESS = "a column has cells but no name; name it or remove it";

const SEPARATORS = [",", ";", "\t", "|"];

/**
 * `.csv` and `.tsv`: the first row names the fields, in any case. An empty or missing cell is an absent field; several
 * reference images in a cell are separated by `;`. A first row with `;` and no comma separates the cells of a `.csv` by
 * `;`, as spreadsheets do where the comma is the decimal point.
 */
export function readTable(usual: string, maxBytes: number): ReadRows {
  return async function* (source, report, rules) {
    let columns: Columns | null = null;
    const { first, lines } = await peek(source);
    const separator = usual === "," && !first.includes(",") && first.includes(";") ? ";" : usual;
    for await (const record of readRecords(lines, { separator, maxBytes }, report)) {
      if (columns !== null) {
        const row = columns.rowOf(record);
        if (row !== null) yield { line: record.line, ...row };
        continue;
      }
      columns = readHeader(record, separator, rules, report);
      if (columns === null) return;
    }
  };
}

/** Reads the lines up to the first one with text. Returns that text, and all lines again from the beginning. */
async function peek(source: AsyncIterable<Line>): Promise<{ first: string; lines: AsyncIterable<Line> }> {
  const iterator = source[Symbol.asyncIterator]();
  const head: Line[] = [];
  for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
    head.push(next.value);
    if (!isBlank(next.value.text)) break;
  }
  const lines = async function* () {
    yield* head;
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
  };
  return { first: head.at(-1)?.text ?? "", lines: lines() };
}

interface Columns {
  /** Null when the row does not fit, which is reported. */
  rowOf(record: CsvRecord): { fields: Record<string, unknown>; columns: Record<string, string> } | null;
}

/** Null when the first row does not name the columns, which is reported. */
function readHeader(
  { line, cells }: CsvRecord,
  separator: string,
  { isTaken, promptColumn = "prompt", template }: ColumnRules,
  report: ReportLine,
): Columns | null {
  const names = cells.map((cell) => {
    const name = cell.trim();
    if (name === promptColumn) return "prompt";
    return FIELDS.includes(name.toLowerCase()) ? name.toLowerCase() : name;
  });
  const twice = names.filter((name, i) => name !== "" && names.indexOf(name) < i);
  for (const name of new Set(twice)) report(line, name, "is the name of two columns; remove or rename one");
  if (!names.includes("prompt") && (template === undefined || promptColumn !== "prompt")) {
    const named = `the first row must name the columns, and one of them must be ${promptColumn}`;
    report(line, null, `${named}${hint(names, separator, promptColumn)}`);
    return null;
  }
  const reported = new Set<string>();
  return {
    rowOf: (record) => {
      if (record.cells.length > names.length) {
        const message = `has ${record.cells.length} cells but the first row names ${names.length}; quote cells that hold the separator`;
        report(record.line, null, message);
        return null;
      }
      const fields: Record<string, unknown> = {};
      const columns: Record<string, string> = {};
      const used = placeholdersOf(template ?? record.cells[names.indexOf("prompt")]);
      for (const [i, name] of names.entries()) {
        const cell = record.cells[i] ?? "";
        if (name !== "") columns[name] = cell.trim();
        const value = cellValue(name, cell);
        if (value === undefined) continue;
        if (isTaken(name) || used.has(name)) fields[name] = value;
        // Reported once, at the line of the names: the column is wrong, not the row.
        else if (!reported.has(name)) {
          reported.add(name);
          reportColumn(line, name, report);
        }
      }
      return { fields, columns };
    },
  };
}

function reportColumn(line: number, name: string, report: ReportLine): void {
  if (name === "") report(line, null, NAMELESS);
  else report(line, ...unknownField(name));
}

/** Suggests what the writer of the first row may have meant by `wanted`, the column of the prompts. */
function hint(names: readonly string[], separator: string, wanted: string): string {
  const meant = names.find((name) => didYouMean(name, [wanted]) !== null);
  if (meant !== undefined) return `; did you mean ${wanted} by ${JSON.stringify(meant)}?`;
  const [only = ""] = names;
  const other = SEPARATORS.find((each) => each !== separator && only.split(each).includes(wanted));
  const right = separator === "\t" ? "tabs" : "commas";
  if (names.length === 1 && other !== undefined)
    return `; the cells are separated by ${JSON.stringify(other)}: save the file with ${right}`;
  const own = names.find((name) => name !== "" && !FIELDS.includes(name));
  if (names.length === 1 || own === undefined) return "";
  return `; name it with --prompt-column, or write the prompt: --prompt "a picture of {{${own}}}"`;
}

function cellValue(name: string, cell: string): unknown {
  const text = cell.trim();
  if (name === "prompt") return cell;
  if (text === "") return undefined;
  // A cell is no object: the column is one of the caller's own.
  if (name === "metadata") return { metadata: text };
  if (name === "output_count") return /^\d+$/.test(text) ? Number(text) : text;
  if (name === "reference_images")
    return text
      .split(";")
      .map((path) => path.trim())
      .filter((path) => path !== "");
  return text;
}
