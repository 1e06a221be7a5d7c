import { Text } from "ink";
import { escapeControls } from "../../kernel/text.ts";
import type { DashboardState } from "../state/state.ts";
import { halfBlockLines } from "../text/half-blocks.ts";
import { Footer } from "./footer.tsx";
import { Blank, Line } from "./line.tsx";

/** The screen of one image, as large as the window allows. */
export function PictureScreen({ state }: { state: DashboardState }) {
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
