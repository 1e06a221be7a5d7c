import { Text } from "ink";
import { memo } from "react";
import stringWidth from "string-width";
import type { Batch } from "../../client/answers.ts";
import { visibleBatches } from "../state/batches.ts";
import { layoutOf } from "../state/layout.ts";
import type { DashboardState } from "../state/state.ts";
import { batchPieces, titleLine } from "./batch-columns.ts";
import { Blank, Line } from "./line.tsx";
import { Pieces } from "./pieces.tsx";

/** The visible part of the batch list, with its column titles. */
export function BatchTable({ state }: { state: DashboardState }) {
  const { view, size } = state;
  const rows = visibleBatches(state);
  const { batchLines } = layoutOf(state);
  const shown = rows.slice(view.top, view.top + batchLines);
  const empty = rows.length === 0 ? emptyLines(state).slice(0, Math.max(0, batchLines)) : [];
  const selected = view.selectedId ?? rows[0]?.id;
  return (
    <>
      <Line>
        <Text dimColor>
          {"  "}
          {titleLine(size.columns)}
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
}

const BatchLine = memo(function BatchLine({ row, isSelected, nowMs, columns }: BatchLineProps) {
  return (
    <Line>
      <Text bold={isSelected} inverse={isSelected}>
        {isSelected ? "▸ " : "  "}
        <Pieces pieces={batchPieces(row, nowMs, columns)} />
      </Text>
    </Line>
  );
});

function emptyLines({ batches, view, service, size }: DashboardState): string[] {
  if (batches.size > 0) return [`  No batch matches “${view.filter}” (esc clears the filter).`];
  const command = service?.submitCommand ?? "imgbatch submit prompts.jsonl";
  const [intro, whole] = ["  No batches yet. In another terminal:", `    ${command}`];
  // A shell joins the lines again.
  const isLong = stringWidth(whole) > size.columns;
  return [intro, ...(isLong ? whole.replace(" --data ", " \\\n      --data ").split("\n") : [whole])];
}
