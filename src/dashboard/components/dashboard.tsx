import { Box } from "ink";
import type { DashboardState } from "../state/state.ts";
import { DetailScreen } from "./detail-screen.tsx";
import { HelpScreen } from "./help-screen.tsx";
import { MainScreen } from "./main-screen.tsx";
import { PictureScreen } from "./picture-screen.tsx";

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
