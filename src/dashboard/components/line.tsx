import { Text } from "ink";
import type { ReactNode } from "react";
import { escapeControls } from "../../kernel/text.ts";
import { nameOf } from "../lists.ts";
import type { DashboardState, Question } from "../state.ts";

/** One line of the screen. It never wraps; its end is cut off. */
export function Line({ children }: { children: ReactNode }) {
  return <Text wrap="truncate-end">{children}</Text>;
}

/** Empty lines that keep the parts below in place; none for a number below one. */
export function Blank({ lines }: { lines: number }) {
  return Array.from({ length: Math.max(0, lines) }, (_, i) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: empty lines are all alike
    <Line key={i}> </Line>
  ));
}

/** A rule with a title, above a part of the screen: `── Requests ─────`. */
export function Rule({ title, note = "", columns }: { title: string; note?: string; columns: number }) {
  const head = `── ${title} `;
  const tail = note === "" ? "" : ` ${note} ──`;
  const fill = "─".repeat(Math.max(0, columns - head.length - tail.length));
  return (
    <Line>
      <Text dimColor>── </Text>
      <Text bold>{title}</Text>
      <Text dimColor>
        {" "}
        {fill}
        {tail}
      </Text>
    </Line>
  );
}

/** The last line: a question, the filter being typed, a message, or the keys. */
export function Footer({ state }: { state: DashboardState }) {
  const { view } = state;
  if (view.question !== null) {
    return (
      <Line>
        <Text bold color="yellow">
          {escapeControls(wordsOf(state, view.question))}
        </Text>
      </Line>
    );
  }
  if (view.isTypingFilter) {
    return (
      <Line>
        <Text bold>filter: </Text>
        {view.filter}
        <Text inverse> </Text>
        <Text dimColor> ⏎ keep · esc clear</Text>
      </Line>
    );
  }
  if (view.message !== null) {
    return (
      <Line>
        <Text {...(view.message.isError ? { color: "red" } : {})}>{escapeControls(view.message.text)}</Text>
      </Line>
    );
  }
  const gap = gapOf(state.size.columns);
  return (
    <Line>
      {fitting(keysOf(state), state.size.columns).map(([key, what]) => (
        <Text key={key}>
          <Text bold>{key}</Text>
          <Text dimColor>{` ${what}${" ".repeat(gap)}`}</Text>
        </Text>
      ))}
    </Line>
  );
}

/** The text of the question, with the keys that answer it. */
function wordsOf(state: DashboardState, question: Question): string {
  const row = question.batchId === null ? undefined : state.batches.get(question.batchId);
  const name = row === undefined ? "this batch" : nameOf(row);
  if (question.kind === "cancel") {
    const bill = row?.isPlay ? "" : " and are billed";
    return `Cancel? y yes, any other key no. Finished images of “${name}” stay${bill}.`;
  }
  if (question.kind === "delete") {
    return `Delete? o image files, r record, any other key nothing. It is “${name}”.`;
  }
  const left = [...state.batches.values()].filter((batch) => !batch.isDone).length;
  return `Quit? y yes, any other key no. ${left} ${left === 1 ? "batch goes" : "batches go"} on at the next start.`;
}

type KeyHint = readonly [key: string, what: string];

/** Cells between two hints. */
const gapOf = (columns: number): number => (columns >= 100 ? 3 : 1);

/** Returns as many hints as fit. The last two, help and the way out, always stay. */
function fitting(hints: readonly KeyHint[], columns: number): readonly KeyHint[] {
  const kept = [...hints];
  const width = () =>
    kept.reduce((sum, [key, what]) => sum + key.length + 1 + what.length + gapOf(columns), 0);
  while (kept.length > 2 && width() > columns) kept.splice(-3, 1);
  return kept;
}

function keysOf(state: DashboardState): KeyHint[] {
  const { view, abilities } = state;
  if (view.screen === "picture")
    return [
      ["↑↓", "other images"],
      ["esc", "back"],
    ];
  if (view.screen === "help") return [["esc", "back"]];
  const goOn: KeyHint[] = [...state.batches.values()].some(({ waiting }) => waiting?.code === "STOPPED")
    ? [["g", "go on"]]
    : [];
  const retry: KeyHint[] = abilities.ownsService ? [["r", "retry"]] : [];
  const web: KeyHint[] = abilities.openConsole ? [["w", "web"]] : [];
  const pause: KeyHint[] = abilities.ownsService ? [["p", "pause"]] : [];
  if (view.screen === "detail") {
    return [
      ["⏎", "view image"],
      ["c", "cancel"],
      ...goOn,
      ...retry,
      ["d", "delete"],
      ["o", "open folder"],
      ["esc", "back"],
      ["?", "help"],
    ];
  }
  return [
    ["⏎", "details"],
    ["c", "cancel"],
    ...goOn,
    ...retry,
    ["d", "delete"],
    ["/", "filter"],
    ["s", "sort"],
    ...pause,
    ...web,
    ["?", "help"],
    ["q", "quit"],
  ];
}
