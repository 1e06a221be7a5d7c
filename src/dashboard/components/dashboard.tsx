import { Box, Text } from "ink";
import { escapeControls } from "../../kernel/text.ts";
import type { Abilities } from "../model.ts";
import type { DashboardState } from "../state.ts";
import { halfBlockLines, inCells } from "../text.ts";
import { DetailScreen } from "./detail-screen.tsx";
import { Blank, Footer, Line, Rule } from "./line.tsx";
import { MainScreen } from "./main-screen.tsx";

const SCREENS = { batches: MainScreen, detail: DetailScreen, picture: PictureScreen, help: HelpScreen };

/** The whole window. */
export function Dashboard({ state }: { state: DashboardState }) {
  const Screen = SCREENS[state.view.screen];
  const { columns, rows } = state.size;
  return (
    <Box flexDirection="column" width={columns} height={rows}>
      <Screen state={state} />
    </Box>
  );
}

/** A key and its effect; the effect is null when the source cannot do it. */
type KeyHelp = readonly [key: string, what: (abilities: Abilities) => string | null];

const KEYS: readonly KeyHelp[] = [
  ["↑ ↓  PgUp PgDn", () => "move; Home goes to the first line"],
  [
    "⏎",
    (can) => `details of the batch: items, ${can.ownsService ? "sizes, costs, errors, history" : "errors"}`,
  ],
  ["v", () => "view the image of an item (in the details)"],
  ["c", () => "cancel the batch; what is finished stays and is billed"],
  ["r", (can) => (can.ownsService ? "retry its failed items, as a new batch" : null)],
  ["d", () => "delete its image files, or its record"],
  ["o", () => "open the folder with the files"],
  ["w", (can) => (can.openConsole ? "open the web console, signed in" : null)],
  ["/", () => "show only batches whose name, id, status or model has the text"],
  ["s", () => "sort by newest, status, progress, name, cost"],
  ["p", (can) => (can.ownsService ? "pause the workers; again to go on" : null)],
  ["l", (can) => (can.ownsService ? "which lines of the log are shown" : null)],
  [
    "q  Ctrl-C",
    (can) =>
      can.ownsService ? "quit; what is not done goes on at the next start" : "quit; the batches go on",
  ],
];

/** The signs of the batch list. All of them fit into 80 columns. */
const SIGNS = [
  ["✓", "done"],
  ["!", "done, some failed"],
  ["×", "failed"],
  ["–", "cancelled, deleted"],
  ["»", "at work"],
  ["·", "waiting"],
] as const;

/** The screen of the keys that work with this source. */
function HelpScreen({ state }: { state: DashboardState }) {
  const { rows, columns } = state.size;
  const lines = KEYS.flatMap(([key, what]) => {
    const text = what(state.abilities);
    return text === null ? [] : [[key, text] as const];
  });
  const shown = lines.slice(0, Math.max(0, rows - 5));
  return (
    <>
      <Rule title="Keys" columns={columns} />
      {shown.map(([key, what]) => (
        <Line key={key}>
          {"  "}
          <Text bold>{inCells(key, 16)}</Text>
          {what}
        </Line>
      ))}
      <Line> </Line>
      <Line>
        {" "}
        {SIGNS.map(([sign, what]) => (
          <Text key={sign}>
            {" "}
            <Text bold>{sign}</Text> {what}
          </Text>
        ))}
      </Line>
      <Blank lines={rows - shown.length - 4} />
      <Footer state={state} />
    </>
  );
}

/** The screen of one image, as large as the window allows. */
function PictureScreen({ state }: { state: DashboardState }) {
  const { picture, size, detail, view } = state;
  const item = detail?.items[view.selectedItem];
  const lines = picture === null ? [] : halfBlockLines(picture, size.columns);
  return (
    <>
      <Line>
        <Text bold>{escapeControls(item?.customId ?? "")}</Text>
        <Text dimColor> {escapeControls(picture?.caption ?? "reading…")}</Text>
      </Line>
      {lines.map((line, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines of one picture
        <Line key={i}>{line}</Line>
      ))}
      <Blank lines={size.rows - 2 - lines.length} />
      <Footer state={state} />
    </>
  );
}
