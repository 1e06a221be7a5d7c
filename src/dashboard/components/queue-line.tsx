import { Text } from "ink";
import { imagesPerSecond, timeLeftMs } from "../state/rate.ts";
import type { DashboardState } from "../state/state.ts";
import { age, sparkline } from "../text/format.ts";
import { ACCENT } from "../theme.ts";
import { Line, Rule } from "./line.tsx";

/** Below this the time that is left matters more than the curve. */
const NARROW_COLUMNS = 76;

/** What waits and runs, how fast, and how long it will take. */
export function QueueLine({ state }: { state: DashboardState }) {
  const { vitals, size } = state;
  const rate = imagesPerSecond(state);
  const leftMs = timeLeftMs(state);
  const isNarrow = size.columns < NARROW_COLUMNS;
  const { places, waitingItems, runningItems } = vitals;
  const workers = `${runningItems} of ${places}${isNarrow ? "" : " workers"}`;
  // A service elsewhere does not tell what its workers do.
  const work =
    places === null
      ? `${waitingItems + runningItems} images to go`
      : `waiting ${waitingItems} · running ${workers}`;
  return (
    <>
      <Rule title="Queue" columns={size.columns} />
      <Line>
        {vitals.isPaused && (
          <Text bold color="yellow">
            PAUSED{" "}
          </Text>
        )}
        {`${work} · `}
        {`${rate.toFixed(1)} img/s `}
        {!isNarrow && (
          <Text color={ACCENT}>
            {sparkline(state.imagesBySecond, Math.max(8, Math.min(60, size.columns - 72)))}
          </Text>
        )}
        {vitals.waitingItems + vitals.runningItems > 0 &&
          `${isNarrow ? "" : " "}· ${leftMs === null ? "time left unknown" : `about ${age(leftMs)} left`}`}
      </Line>
    </>
  );
}
