import { formatBytes } from "../kernel/text.ts";
import type { Line } from "./lines.ts";
import { isBlank, type ReportLine } from "./rows.ts";

/** A row of cells, with the line where it begins. */
export interface CsvRecord {
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
export async function* readRecords(
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
