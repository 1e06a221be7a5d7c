import { type Parser, parse } from "csv-parse";
import { formatBytes } from "../../kernel/text.ts";
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
 * quotes. Blank lines between records are skipped, records with a damaged line left out. A record of more than
 * `maxBytes` ends the reading: mostly its quote is not closed.
 */
export async function* readRecords(
  lines: AsyncIterable<Line>,
  { separator, maxBytes }: { separator: string; maxBytes: number },
  report: ReportLine,
): AsyncGenerator<CsvRecord, void, undefined> {
  const found: { cells: string[]; endByte: number }[] = [];
  const parser = openParser(separator, (cells, endByte) => found.push({ cells, endByte }));
  const open = new OpenLines();
  const complete = function* () {
    for (const { cells, endByte } of found.splice(0)) {
      const record = open.takeRecord(cells, endByte, report);
      if (record !== null) yield record;
    }
  };
  for await (const line of lines) {
    const text = `${line.text}\n`;
    open.add(line, text);
    await write(parser, text);
    yield* complete();
    if (open.bytes <= maxBytes) continue;
    report(open.firstLine(), null, `is longer than ${formatBytes(maxBytes)}: ${NOT_CLOSED}`);
    return;
  }
  await end(parser);
  yield* complete();
  if (open.hasText()) report(open.firstLine(), null, NOT_CLOSED);
}

function openParser(separator: string, onRecord: (cells: string[], endByte: number) => void): Parser {
  const parser = parse({
    delimiter: separator,
    record_delimiter: ["\r\n", "\n"],
    skip_empty_lines: true,
    // A quote counts at the beginning of a cell only: a prompt without quotes around it may hold some.
    relax_quotes: true,
    relax_column_count: true,
    on_record: (cells: string[], { bytes }: { bytes: number }) => {
      onRecord(cells, bytes);
      return null;
    },
  });
  // The only possible error is a quote that is never closed. Its lines are still open then.
  parser.on("error", () => {});
  return parser.resume();
}

function write(parser: Parser, text: string): Promise<void> {
  return new Promise((resolve) => {
    parser.write(text, () => resolve());
  });
}

function end(parser: Parser): Promise<void> {
  return new Promise((resolve) => {
    parser.once("close", resolve);
    parser.end();
  });
}

interface OpenLine {
  number: number;
  text: string;
  endByte: number;
  isBad: boolean;
}

/** The lines whose record has not ended yet: the parser counts bytes, people count lines. */
class OpenLines {
  #lines: OpenLine[] = [];
  #readBytes = 0;
  #takenBytes = 0;

  get bytes(): number {
    return this.#readBytes - this.#takenBytes;
  }

  add({ number, problem }: Line, text: string): void {
    // Blank lines between records belong to none.
    if (this.#lines.every((line) => isBlank(line.text))) this.#lines = [];
    this.#readBytes += Buffer.byteLength(text);
    if (this.#lines.length === 0) this.#takenBytes = this.#readBytes - Buffer.byteLength(text);
    this.#lines.push({ number, text, endByte: this.#readBytes, isBad: problem !== null });
  }

  hasText(): boolean {
    return this.#lines.some((line) => !isBlank(line.text) && !line.isBad);
  }

  /** The line where the open record begins. */
  firstLine(): number {
    return (this.#lines.find((line) => !isBlank(line.text)) ?? this.#lines[0])?.number ?? 1;
  }

  /** Returns the record that ends at `endByte`. Null when it is left out. */
  takeRecord(cells: string[], endByte: number, report: ReportLine): CsvRecord | null {
    const line = this.firstLine();
    const taken: OpenLine[] = [];
    while (this.#lines[0] !== undefined && this.#lines[0].endByte <= endByte)
      taken.push(this.#lines.shift() as OpenLine);
    this.#takenBytes = endByte;
    // A line of blanks.
    if (taken.every(({ text }) => isBlank(text)) || taken.some(({ isBad }) => isBad)) return null;
    const text = taken.map((each) => each.text).join("");
    const values = cells.map((cell) => unquoted(cell, text));
    if (values.every((value) => value !== null)) return { line, cells: values };
    report(line, null, NOT_DOUBLED);
    return null;
  }
}

/**
 * Removes the quotes of a cell. The parser returns a cell that continues after its closing quote with its quotes. Blanks
 * after the quote are dropped; null for other text there.
 */
function unquoted(cell: string, text: string): string | null {
  if (!cell.startsWith('"') || text.includes(`"${cell.replaceAll('"', '""')}"`)) return cell;
  return /^"([^"]*)"\s*$/.exec(cell)?.[1] ?? null;
}
