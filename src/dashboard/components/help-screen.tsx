import { Text } from "ink";
import type { DashboardState } from "../state/state.ts";
import { inCells } from "../text/format.ts";
import { Footer } from "./footer.tsx";
import { Blank, Line, Rule } from "./line.tsx";

const KEYS: readonly (readonly [string, string])[] = [
  ["↑ ↓  PgUp PgDn", "move; Home goes to the first line and stays there"],
  ["⏎", "details of the batch: items, sizes, costs, errors, history"],
  ["v", "view the image of an item (in the details)"],
  ["c", "cancel the batch; what is finished stays and is billed"],
  ["r", "retry its failed items, as a new batch"],
  ["d", "delete its image files, or its record"],
  ["o", "open the folder with the files"],
  ["/", "show only batches whose name, id, status or model has the text"],
  ["s", "sort by newest, status, progress, name, cost"],
  ["p", "pause the workers; again to go on"],
  ["l", "which lines of the log are shown"],
  ["q  Ctrl-C", "quit; what is not done goes on at the next start"],
];

export function HelpScreen({ state }: { state: DashboardState }) {
  const { rows, columns } = state.size;
  const signs = "✓ done  ! done, some failed  × failed  – cancelled, deleted  » at work  · waiting";
  const shown = KEYS.slice(0, Math.max(0, rows - 5));
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
        {"  "}
        {signs}
      </Line>
      <Blank lines={rows - shown.length - 4} />
      <Footer state={state} />
    </>
  );
}
