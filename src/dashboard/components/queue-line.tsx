import { Text } from "ink";
import { formatDuration } from "../../kernel/durations.ts";
import { imagesPerSecond, timeLeftMs } from "../state/rate.ts";
import type { DashboardState } from "../state/state.ts";
import { sparkline } from "../text/format.ts";
import { ACCENT } from "../theme.ts";
import { Line, Rule } from "./line.tsx";

/** A narrower window shows the time left instead of the sparkline. */
const NARROW_COLUMNS = 76;

/** The waiting and running images, their rate, and the time left. */
export function QueueLine({ state }: { state: DashboardState }) {
  const { vitals, size } = state;
  const rate = imagesPerSecond(state);
  const leftMs = timeLeftMs(state);
  const isNarrow = size.columns < NARROW_COLUMNS;
  const { concurrency, waitingItems, runningItems } = vitals;
  const workers = `${runningItems} of ${concurrency}${isNarrow ? "" : " workers"}`;
  // A remote service does not report the state of its workers.
  const work =
    concurrency === null
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
          `${isNarrow ? "" : " "}· ${leftMs === null ? "time left unknown" : `about ${formatDuration(leftMs)} left`}`}
      </Line>
    </>
  );
}
