import { Text } from "ink";
import { escapeControls } from "../../kernel/text.ts";
import type { ItemRow } from "../model.ts";
import { selectedBatch } from "../state/batches.ts";
import { detailLines } from "../state/layout.ts";
import type { DashboardState } from "../state/state.ts";
import { bytes, clockTime, dollars, inCells } from "../text/format.ts";
import { ITEM_MARKS, STATUS_MARKS } from "../theme.ts";
import { markOf } from "./batch-columns.ts";
import { Footer } from "./footer.tsx";
import { Blank, Line, Rule } from "./line.tsx";

/** One batch: its facts, its history, and its items. */
export function DetailScreen({ state }: { state: DashboardState }) {
  const batch = selectedBatch(state);
  const { columns } = state.size;
  if (batch === null) return <Footer state={state} />;
  const lines = detailLines(state);
  const items = state.detail?.items ?? [];
  const { itemTop, selectedItem } = state.view;
  const shown = items.slice(itemTop, itemTop + lines);
  const mark = markOf(batch);
  return (
    <>
      <Line>
        <Text bold>{inCells(batch.name, Math.max(10, columns - 52))}</Text> <Text dimColor>{batch.id}</Text>
      </Line>
      <Line>
        <Text bold {...(mark.color ? { color: mark.color } : {})}>
          {mark.sign} {mark.word}
        </Text>
        {` · ${batch.successCount} of ${batch.itemCount} made · ${batch.failCount} failed`}
        {` · cost ${dollars(batch.costMicroUsd)}, estimated ${dollars(batch.estimatedMicroUsd)}`}
      </Line>
      <Line>
        <Text dimColor>
          {escapeControls(batch.model)}
          {batch.provider === null ? "" : ` · made by ${batch.provider}`}
        </Text>
      </Line>
      <Line>
        {batch.error === null ? (
          <History state={state} />
        ) : (
          <Text color="red">{escapeControls(batch.error)}</Text>
        )}
      </Line>
      <Rule
        title="Items"
        note={items.length === 0 ? "" : `${selectedItem + 1} of ${items.length}`}
        columns={columns}
      />
      <Line>
        <Text dimColor>
          {"  "}
          {itemLine(columns, "ITEM", "STATUS", "SIZE", "COST", "PROMPT, OR WHY IT FAILED")}
        </Text>
      </Line>
      {state.detail === null && <Line> reading…</Line>}
      {shown.map((item, i) => (
        <Item key={item.customId} item={item} isSelected={itemTop + i === selectedItem} columns={columns} />
      ))}
      <Blank lines={lines - Math.max(shown.length, state.detail === null ? 1 : 0)} />
      <Footer state={state} />
    </>
  );
}

function History({ state }: { state: DashboardState }) {
  const history = state.detail?.history;
  if (!history) return <Text> </Text>;
  const words = history.map(({ status, atMs }) => `${STATUS_MARKS[status].word} ${clockTime(atMs)}`);
  return <Text dimColor>{words.join(" → ")}</Text>;
}

function Item({ item, isSelected, columns }: { item: ItemRow; isSelected: boolean; columns: number }) {
  const mark = ITEM_MARKS[item.status];
  const size = item.sizeBytes === null ? "–" : bytes(item.sizeBytes);
  const text = itemLine(
    columns,
    item.customId,
    `${mark.sign} ${mark.word}`,
    size,
    item.status === "success" ? dollars(item.costMicroUsd) : "–",
    item.error ?? item.prompt,
  );
  return (
    <Line>
      <Text bold={isSelected} inverse={isSelected} {...(item.status === "failed" ? { color: "red" } : {})}>
        {isSelected ? "▸ " : "  "}
        {text}
      </Text>
    </Line>
  );
}

function itemLine(
  columns: number,
  id: string,
  status: string,
  size: string,
  cost: string,
  rest: string,
): string {
  const idWidth = columns >= 120 ? 36 : columns >= 80 ? 20 : 14;
  const head = [
    inCells(id, idWidth),
    inCells(status, 9),
    inCells(size, 8, "right"),
    inCells(cost, 7, "right"),
  ].join(" ");
  return `${head}  ${inCells(rest, Math.max(8, columns - 2 - idWidth - 9 - 8 - 7 - 3 - 2))}`;
}
