import { Text } from "ink";
import { escapeControls } from "../../kernel/text.ts";
import { wordsOf } from "../state/questions.ts";
import type { DashboardState } from "../state/state.ts";
import { Line } from "./line.tsx";

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

function keysOf({ view, abilities }: DashboardState): KeyHint[] {
  if (view.screen === "picture")
    return [
      ["↑↓", "other images"],
      ["esc", "back"],
    ];
  if (view.screen === "help") return [["esc", "back"]];
  const retry: KeyHint[] = abilities.ownsService ? [["r", "retry"]] : [];
  const web: KeyHint[] = abilities.openConsole ? [["w", "web"]] : [];
  const pause: KeyHint[] = abilities.ownsService ? [["p", "pause"]] : [];
  if (view.screen === "detail") {
    return [
      ["⏎", "view image"],
      ["c", "cancel"],
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
