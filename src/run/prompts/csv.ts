import { isSkipped, type ReportLine, type Row } from "./rows.ts";

interface CsvRecord {
  line: number;
  cells: string[];
}

/**
 * `.csv` and `.tsv`: the first row names the fields. Cells may be quoted, and then hold separators, line breaks and
 * doubled quotes. An empty cell is an absent field; several reference images in a cell are separated by `;`.
 * Rule: FILE-9.
 */
export function readCsv(text: string, separator: string, report: ReportLine): Row[] {
  const [header, ...records] = readRecords(text, separator, report);
  if (header === undefined) return [];
  const names = header.cells.map((name) => name.trim());
  if (!names.includes("prompt")) {
    report(header.line, null, "the first row must name the columns, and one of them must be prompt");
    return [];
  }
  const rows: Row[] = [];
  for (const { line, cells } of records) {
    if (cells.length > names.length) {
      report(
        line,
        null,
        `has ${cells.length} cells but the first row names ${names.length}; quote cells that hold the separator`,
      );
      continue;
    }
    const entries = names.map((name, i) => [name, cellValue(name, cells[i] ?? "")] as const);
    rows.push({ line, fields: Object.fromEntries(entries.filter(([, value]) => value !== undefined)) });
  }
  return rows;
}

function cellValue(name: string, cell: string): unknown {
  const text = cell.trim();
  if (name === "prompt") return cell;
  if (text === "") return undefined;
  if (name === "output_count") return /^\d+$/.test(text) ? Number(text) : text;
  if (name === "reference_images")
    return text
      .split(";")
      .map((path) => path.trim())
      .filter((path) => path !== "");
  return text;
}

/** Splits into records, with the line where each begins. Blank lines and comments between records are skipped. */
function readRecords(text: string, separator: string, report: ReportLine): CsvRecord[] {
  const records: CsvRecord[] = [];
  let at = 0;
  let line = 1;
  while (at < text.length) {
    const lineEnd = text.indexOf("\n", at);
    const rest = text.slice(at, lineEnd < 0 ? text.length : lineEnd);
    if (isSkipped(rest)) {
      at += rest.length + 1;
      line++;
      continue;
    }
    const record = readRecord(text, at, separator);
    if (record.end === null) {
      report(line, null, 'a quoted cell is not closed; end it with "');
      return records;
    }
    records.push({ line, cells: record.cells });
    line += countLines(text, at, record.end);
    at = record.end;
  }
  return records;
}

/** One record from `start`; `end` is where the next one begins, null when a quote is left open. */
function readRecord(text: string, start: number, separator: string): { cells: string[]; end: number | null } {
  const cells: string[] = [];
  let at = start;
  for (;;) {
    let cell = "";
    if (text[at] === '"') {
      for (at++; ; at++) {
        const quote = text.indexOf('"', at);
        if (quote < 0) return { cells, end: null };
        cell += text.slice(at, quote);
        at = quote + 1;
        if (text[at] !== '"') break;
        cell += '"';
      }
    }
    const stop = nextStop(text, at, separator);
    cells.push(cell + text.slice(at, stop).replace(/\r$/, ""));
    at = stop + 1;
    if (text[stop] !== separator) return { cells, end: at };
  }
}

function nextStop(text: string, from: number, separator: string): number {
  for (let at = from; at < text.length; at++) {
    if (text[at] === separator || text[at] === "\n") return at;
  }
  return text.length;
}

function countLines(text: string, from: number, to: number): number {
  let count = 0;
  for (let at = text.indexOf("\n", from); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) count++;
  return count;
}
