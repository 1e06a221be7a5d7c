import { Text } from "ink";
import { memo } from "react";
import stringWidth from "string-width";
import type { Batch } from "../../client/answers.ts";
import { programName } from "../../kernel/command-line.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { type DashboardState, layoutOf, nameOf, progressOf, statusOf, visibleBatches } from "../state.ts";
import { bar, dollars, inCells, type Mark, STATUS_MARKS } from "../text.ts";
import { Blank, Line } from "./line.tsx";

/** The visible part of the batch list, with its column titles. */
export function BatchTable({ state }: { state: DashboardState }) {
  const { view, size } = state;
  const rows = visibleBatches(state);
  const { batchLines } = layoutOf(state);
  const shown = rows.slice(view.top, view.top + batchLines);
  const empty = rows.length === 0 ? emptyLines(state).slice(0, Math.max(0, batchLines)) : [];
  const selected = view.selectedId ?? rows[0]?.id;
  const longestName = Math.max(USUAL_NAME, ...shown.map((row) => stringWidth(nameOf(row))));
  return (
    <>
      <Line>
        <Text dimColor>
          {"  "}
          {columnsFor(size.columns, longestName)
            .map(({ column, width }) => inCells(column.title, width, column.align))
            .join(" ")}
        </Text>
      </Line>
      {empty.map((line) => (
        <Line key={line}>{line}</Line>
      ))}
      {shown.map((row) => (
        <BatchLine
          key={row.id}
          row={row}
          isSelected={row.id === selected}
          nowMs={state.nowMs}
          columns={size.columns}
          longestName={longestName}
        />
      ))}
      <Blank lines={batchLines - shown.length - empty.length} />
    </>
  );
}

interface BatchLineProps {
  row: Batch;
  isSelected: boolean;
  nowMs: number;
  columns: number;
  longestName: number;
}

const BatchLine = memo(function BatchLine({ row, isSelected, nowMs, columns, longestName }: BatchLineProps) {
  return (
    <Line>
      <Text bold={isSelected} inverse={isSelected}>
        {isSelected ? "▸ " : "  "}
        <Pieces pieces={batchPieces(row, nowMs, columnsFor(columns, longestName))} />
      </Text>
    </Line>
  );
});

function emptyLines({ batches, view, service, size }: DashboardState): string[] {
  if (batches.size > 0) return [`  No batch matches “${view.filter}” (esc clears the filter).`];
  const command = service?.submitCommand ?? `${programName()} submit prompts.jsonl`;
  const [intro, whole] = ["  No batches yet. In another terminal:", `    ${command}`];
  // A shell joins the lines again.
  const isLong = stringWidth(whole) > size.columns;
  return [intro, ...(isLong ? whole.replace(" --data ", " \\\n      --data ").split("\n") : [whole])];
}

/** The pieces of one line, each in its own colour. */
function Pieces({ pieces }: { pieces: readonly Piece[] }) {
  return pieces.map((piece, i) =>
    piece.color === undefined && !piece.isDim ? (
      piece.text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a line keep their order
      <Text key={i} dimColor={piece.isDim === true} {...(piece.color ? { color: piece.color } : {})}>
        {piece.text}
      </Text>
    ),
  );
}

/** A piece of text and its look. */
interface Piece {
  text: string;
  color?: string;
  isDim?: boolean;
}

interface Column {
  title: string;
  /** In cells; 0 is as wide as the longest name, as far as the other columns leave room. */
  width: number;
  align?: "right";
  /** The smallest window width that shows the column. */
  from: number;
  /** The largest window width that shows the column. */
  to?: number;
  cell(row: Batch, nowMs: number, width: number): Piece[];
}

interface ShownColumn {
  column: Column;
  /** In cells. */
  width: number;
}

const COLUMNS: readonly Column[] = [
  { title: "NAME", width: 0, from: 0, cell: (row) => [{ text: nameOf(row) }] },
  { title: "DONE", width: 6, from: 39, to: 59, cell: (row) => barCell(row, 6) },
  { title: "PROGRESS", width: 11, from: 60, to: 99, cell: (row) => progressCell(row, 6) },
  { title: "PROGRESS", width: 21, from: 100, cell: (row) => progressCell(row, 16) },
  { title: "STATUS", width: 11, from: 0, cell: (row) => statusCell(row) },
  { title: "OK", width: 4, align: "right", from: 0, cell: (row) => [{ text: String(row.successCount) }] },
  { title: "FAIL", width: 4, align: "right", from: 0, cell: failCell },
  { title: "OF", width: 4, align: "right", from: 100, cell: (row) => [{ text: String(row.itemCount ?? 0) }] },
  { title: "COST", width: 8, align: "right", from: 70, cell: costCell },
  {
    title: "EST.",
    width: 7,
    align: "right",
    from: 78,
    cell: (row) => [{ text: row.isPlay ? "" : dollars(row.estimatedCostMicroUsd, "limit"), isDim: true }],
  },
  {
    title: "IMG/S",
    width: 6,
    align: "right",
    from: 110,
    cell: (row, nowMs) => [{ text: rateOf(row, nowMs) }],
  },
  { title: "MODEL", width: 26, from: 140, cell: (row) => [{ text: row.model ?? "", isDim: true }] },
  { title: "ID", width: 18, from: 170, cell: (row) => [{ text: row.id, isDim: true }] },
  {
    title: "AGE",
    width: 7,
    align: "right",
    from: 50,
    cell: (row, nowMs) => [{ text: formatDuration(nowMs - (row.createdAtMs ?? nowMs)) }],
  },
];

/** The pieces of a batch's line. Together they are as wide as the column titles. */
function batchPieces(row: Batch, nowMs: number, columns: readonly ShownColumn[]): Piece[] {
  const pieces: Piece[] = [];
  for (const { column, width } of columns) {
    if (pieces.length > 0) pieces.push({ text: " " });
    const cell = column.cell(row, nowMs, width);
    const [only] = cell;
    if (cell.length === 1 && only) pieces.push({ ...only, text: inCells(only.text, width, column.align) });
    else pieces.push(...cell);
  }
  return pieces;
}

const NARROWEST_NAME = 8;
/** Longer names make the column wider. A list that scrolls must not move its columns because of a few cells. */
const USUAL_NAME = 24;

/** The columns of a window that is `cells` wide. */
function columnsFor(cells: number, longestName: number): ShownColumn[] {
  const shown = COLUMNS.filter((column) => cells >= column.from && cells <= (column.to ?? cells));
  const fixed = shown.reduce((sum, column) => sum + column.width, 0);
  // The cursor takes the first two cells.
  const left = Math.max(NARROWEST_NAME, cells - 2 - fixed - (shown.length - 1));
  return shown.map((column) => ({ column, width: column.width || Math.min(left, longestName) }));
}

/** The mark of a batch's status. A completed batch with failures does not look like a plain success. */
export function markOf(row: Batch): Mark {
  const status = statusOf(row);
  if (status !== row.status) return { sign: "?", word: row.status };
  if (row.waiting?.code === "STOPPED") return { sign: "■", word: "stopped", color: "yellow" };
  if (row.waiting?.code === "CANCELLING") return { sign: "!", word: "cancelling", color: "yellow" };
  if (row.waiting !== null && status === "running") return { sign: "!", word: "waiting", color: "yellow" };
  if (status !== "completed" || row.failCount === 0) return STATUS_MARKS[status];
  return row.successCount === 0
    ? { sign: "×", word: "no images", color: "red" }
    : { sign: "!", word: "completed", color: "yellow" };
}

function statusCell(row: Batch): Piece[] {
  const { sign, word, color } = markOf(row);
  return [{ text: `${sign} ${word}`, ...(color ? { color } : {}) }];
}

function failCell(row: Batch): Piece[] {
  return [row.failCount > 0 ? { text: String(row.failCount), color: "red" } : { text: "0", isDim: true }];
}

/** There is no space for the words about drawings. */
function costCell(row: Batch): Piece[] {
  return [{ text: row.isPlay ? "free" : dollars(row.actualCostMicroUsd, "sum") }];
}

function barCell(row: Batch, width: number): Piece[] {
  const done = progressOf(row);
  const { good, bad, rest } = bar(width, done, row.itemCount ? row.failCount / row.itemCount : 0);
  const color = row.isDone ? "green" : "cyan";
  return [
    { text: good, color },
    { text: bad, color: "red" },
    { text: rest, isDim: true },
  ];
}

function progressCell(row: Batch, width: number): Piece[] {
  return [...barCell(row, width), { text: `${Math.floor(progressOf(row) * 100)}%`.padStart(5) }];
}

function rateOf(row: Batch, nowMs: number): string {
  const seconds = ((row.endedAtMs ?? nowMs) - (row.createdAtMs ?? nowMs)) / 1000;
  return row.successCount === 0 || seconds <= 0 ? "–" : (row.successCount / seconds).toFixed(1);
}
