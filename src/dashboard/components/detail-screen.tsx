import { Text } from "ink";
import type { Batch } from "../../client/answers.ts";
import { jobsText, waitingText } from "../../contract/waiting.ts";
import { clockTime } from "../../kernel/durations.ts";
import { FREE_DRAWINGS } from "../../kernel/money.ts";
import { escapeControls, formatSize } from "../../kernel/text.ts";
import { detailLines, nameOf, selectedBatch } from "../lists.ts";
import type { ItemRow } from "../model.ts";
import type { DashboardState } from "../state.ts";
import { dollars, ITEM_MARKS, inCells, STATUS_MARKS } from "../text.ts";
import { markOf } from "./batch-table.tsx";
import { Blank, Footer, Line, Rule } from "./line.tsx";

/** The screen of one batch: its facts, its history and its items. */
export function DetailScreen({ state }: { state: DashboardState }) {
  const batch = selectedBatch(state);
  const { columns } = state.size;
  if (batch === null) return <Footer state={state} />;
  const lines = detailLines(state);
  const items = state.detail?.items ?? [];
  const { itemTop, selectedItem } = state.view;
  const shown = items.slice(itemTop, itemTop + lines);
  const mark = markOf(batch);
  const jobs = jobsText(batch.jobs, state.nowMs);
  return (
    <>
      <Line>
        <Text bold>{inCells(nameOf(batch), Math.max(10, columns - 52))}</Text>{" "}
        <Text dimColor>{batch.id}</Text>
      </Line>
      <Line>
        <Text bold {...(mark.color ? { color: mark.color } : {})}>
          {mark.sign} {mark.word}
        </Text>
        {` · ${batch.successCount} of ${batch.itemCount ?? 0} made · ${batch.failCount} failed`}
        {moneyWords(batch)}
      </Line>
      <Line>
        <Text dimColor>
          {escapeControls(batch.model ?? "")}
          {batch.provider === null ? "" : ` · made by ${batch.provider}`}
          {batch.source === null || batch.source === "batch" ? "" : ` · ${batch.source} job`}
          {jobs === null ? "" : ` · ${escapeControls(jobs)}`}
        </Text>
      </Line>
      <Line>
        {batch.error !== null ? (
          <Text color="red">{escapeControls(`${batch.error.code}: ${batch.error.message}`)}</Text>
        ) : batch.waiting !== null ? (
          <Text color="yellow">{escapeControls(waitingText(batch.waiting))}</Text>
        ) : (
          <History state={state} />
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
          {itemLine(state, TITLES)}
        </Text>
      </Line>
      {state.detail === null && <Line> reading…</Line>}
      {shown.map((item, i) => (
        <Item
          key={item.customId}
          item={item}
          isPlay={batch.isPlay}
          isSelected={itemTop + i === selectedItem}
          state={state}
        />
      ))}
      <Blank lines={lines - Math.max(shown.length, state.detail === null ? 1 : 0)} />
      <Footer state={state} />
    </>
  );
}

function moneyWords({ actualCostMicroUsd: cost, estimatedCostMicroUsd: estimate, isPlay }: Batch): string {
  if (isPlay) return ` · ${FREE_DRAWINGS}`;
  const words = cost === null ? "" : ` · cost ${dollars(cost, "sum")}`;
  return `${words}${estimate === null ? "" : ` · estimated ${dollars(estimate, "limit")}`}`;
}

function History({ state }: { state: DashboardState }) {
  const history = state.detail?.history;
  if (!history) return <Text> </Text>;
  const words = history.map(({ status, atMs }) => `${STATUS_MARKS[status].word} ${clockTime(atMs)}`);
  return <Text dimColor>{words.join(" → ")}</Text>;
}

function Item(props: { item: ItemRow; isPlay: boolean; isSelected: boolean; state: DashboardState }) {
  const { item, isPlay, isSelected, state } = props;
  const mark = ITEM_MARKS[item.status];
  const text = itemLine(state, {
    id: item.customId,
    status: `${mark.sign} ${mark.word}`,
    size: item.sizeBytes === null ? "–" : formatSize(item.sizeBytes),
    cost: item.status !== "success" ? "–" : isPlay ? "free" : dollars(item.costMicroUsd, "exact"),
    rest: item.error ?? item.prompt,
  });
  return (
    <Line>
      <Text bold={isSelected} inverse={isSelected} {...(item.status === "failed" ? { color: "red" } : {})}>
        {isSelected ? "▸ " : "  "}
        {text}
      </Text>
    </Line>
  );
}

const TITLES = { id: "ITEM", status: "STATUS", size: "SIZE", cost: "COST", rest: "PROMPT, OR WHY IT FAILED" };

function itemLine({ size: { columns }, abilities }: DashboardState, texts: typeof TITLES): string {
  const idWidth = columns >= 120 ? 36 : columns >= 80 ? 20 : 14;
  const facts = abilities.ownsService
    ? ` ${inCells(texts.size, 8, "right")} ${inCells(texts.cost, 7, "right")}`
    : "";
  const restWidth = columns - 2 - idWidth - 10 - (abilities.ownsService ? 17 : 0) - 2;
  return `${inCells(texts.id, idWidth)} ${inCells(texts.status, 9)}${facts}  ${inCells(texts.rest, Math.max(8, restWidth))}`;
}
