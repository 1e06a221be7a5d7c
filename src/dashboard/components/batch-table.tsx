import { Text } from "ink";
import { memo } from "react";
import type { BatchRow } from "../model.ts";
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
  const selected = view.selectedId ?? rows[0]?.id;
  return (
    <>
      <Line>
        <Text dimColor>
          {"  "}
          {titleLine(size.columns)}
        </Text>
      </Line>
      {rows.length === 0 && batchLines > 0 && <Line>{emptyWords(state)}</Line>}
      {shown.map((row) => (
        <BatchLine
          key={row.id}
          row={row}
          isSelected={row.id === selected}
          nowMs={state.nowMs}
          columns={size.columns}
        />
      ))}
      <Blank lines={batchLines - Math.max(shown.length, rows.length === 0 ? 1 : 0)} />
    </>
  );
}

interface BatchLineProps {
  row: BatchRow;
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

function emptyWords({ batches, view }: DashboardState): string {
  if (batches.size > 0) return `  No batch matches “${view.filter}” (esc clears the filter).`;
  return "  No batches yet. In another terminal: imgbatch submit prompts.jsonl";
}
