import { Text } from "ink";
import { imagesPerSecond, timeLeftMs } from "../state/rate.ts";
import type { DashboardState } from "../state/state.ts";
import { age, sparkline } from "../text/format.ts";
import { ACCENT } from "../theme.ts";
import { Line, Rule } from "./line.tsx";

/** What waits and runs, how fast, and how long it will take. */
export function QueueLine({ state }: { state: DashboardState }) {
  const { vitals, size } = state;
  const rate = imagesPerSecond(state);
  const leftMs = timeLeftMs(state);
  const workers = vitals.places === null ? "" : ` of ${vitals.places} workers`;
  return (
    <>
      <Rule title="Queue" columns={size.columns} />
      <Line>
        {vitals.isPaused && (
          <Text bold color="yellow">
            PAUSED{" "}
          </Text>
        )}
        {`waiting ${vitals.waitingItems} · running ${vitals.runningItems}${workers} · `}
        {`${rate.toFixed(1)} img/s `}
        <Text color={ACCENT}>
          {sparkline(state.imagesBySecond, Math.max(8, Math.min(60, size.columns - 72)))}
        </Text>
        {vitals.waitingItems + vitals.runningItems > 0 &&
          ` · ${leftMs === null ? "time left unknown" : `about ${age(leftMs)} left`}`}
      </Line>
    </>
  );
}
