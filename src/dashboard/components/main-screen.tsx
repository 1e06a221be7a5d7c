import { Box, Text } from "ink";
import type { LogLevel, LogLine, RequestLine } from "../../contract/activity.ts";
import { unnamed } from "../../contract/waiting.ts";
import { clockTime, formatDuration } from "../../kernel/durations.ts";
import { FREE_DRAWINGS, formatUsd } from "../../kernel/money.ts";
import { escapeControls, formatSize } from "../../kernel/text.ts";
import { layoutOf, shownLog } from "../lists.ts";
import { type DashboardState, imagesPerSecond, timeLeftMs } from "../state.ts";
import { inCells, type Mark, sparkline } from "../text.ts";
import { BatchTable } from "./batch-table.tsx";
import { Blank, Footer, Line, Rule } from "./line.tsx";

const ACCENT = "cyan";

/** The first screen: the service, batches, queue, requests, log and keys. */
export function MainScreen({ state }: { state: DashboardState }) {
  return (
    <>
      <Header state={state} />
      <Rule title="Batches" note={summary(state)} columns={state.size.columns} />
      <BatchTable state={state} />
      <QueueLine state={state} />
      <Activity state={state} />
      <Footer state={state} />
    </>
  );
}

function summary({ batches, view }: DashboardState): string {
  const rows = [...batches.values()];
  const queued = rows.filter((row) => row.status === "queued").length;
  const ended = rows.filter((row) => row.isDone).length;
  const parts = [
    `${rows.length - queued - ended} running`,
    `${queued} queued`,
    `${ended} ended`,
    `by ${view.sort}`,
  ];
  if (view.filter !== "") parts.push(`only “${view.filter}”`);
  return parts.join(" · ");
}

/** The service's address and state in two lines, and the providers that cannot be used in a third. The most important facts stand on the left, because the end is cut off. */
function Header({ state }: { state: DashboardState }) {
  const { service, vitals, nowMs } = state;
  const { balanceMicroUsd, heldMicroUsd, isPlay, freeDiskBytes } = vitals;
  const held = heldMicroUsd ? `held ${formatUsd(heldMicroUsd, "sum")}` : null;
  const first = [
    service?.providers,
    service?.startedAtMs != null ? `up ${formatDuration(nowMs - service.startedAtMs)}` : null,
  ];
  const second = [
    ...(isPlay
      ? [FREE_DRAWINGS]
      : [balanceMicroUsd === null ? null : `balance ${formatUsd(balanceMicroUsd, "sum")}`, held]),
    freeDiskBytes === null ? null : `disk ${formatSize(freeDiskBytes)} free`,
    service?.dataDirectory,
  ];
  return (
    <>
      <Line>
        <Text bold color={ACCENT}>
          imgbatch
        </Text>
        {"  "}
        <Text bold>{service?.url ?? "starting…"}</Text>
        <Text dimColor>{join(first)}</Text>
      </Line>
      <Line>
        <Text dimColor>{join(second).slice(3)}</Text>
      </Line>
      {vitals.troubles.length > 0 && (
        <Line>
          <Text color={vitals.troubles.some(({ untilMs }) => untilMs === null) ? "red" : "yellow"}>
            {`! ${vitals.troubles.map(troubleText).join(" · ")}`}
          </Text>
        </Line>
      )}
    </>
  );
}

/** Such as `google (gemini-3-pro-image) cooling until 14:32: Too many requests.` */
function troubleText({
  provider,
  model,
  message,
  untilMs,
}: DashboardState["vitals"]["troubles"][number]): string {
  const who = model === null ? provider : `${provider} (${model})`;
  const state = untilMs === null ? "disabled" : `cooling until ${clockTime(untilMs).slice(0, 5)}`;
  return escapeControls(`${who} ${state}: ${unnamed(provider, message)}`);
}

function join(parts: readonly (string | null | undefined)[]): string {
  return parts
    .filter((part) => part != null)
    .map((part) => ` · ${part}`)
    .join("");
}

/** A narrower window shows the time left instead of the sparkline. */
const NARROW_COLUMNS = 76;

/** The waiting and running images, their rate, and the time left. */
function QueueLine({ state }: { state: DashboardState }) {
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

/** The latest requests and log lines, side by side in a wide window. */
function Activity({ state }: { state: DashboardState }) {
  const { requestLines, logLines, isWide } = layoutOf(state);
  const columns = isWide ? Math.floor((state.size.columns - 2) / 2) : state.size.columns;
  const requests = state.requests.slice(-requestLines);
  return (
    <Box flexDirection={isWide ? "row" : "column"} gap={isWide ? 2 : 0}>
      {requestLines > 0 && (
        <Box flexDirection="column" width={columns}>
          <Rule title="Requests" columns={columns} />
          {requests.map((line, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: lines have no identity
            <Request key={i} line={line} columns={columns} />
          ))}
          <Blank lines={requestLines - requests.length} />
        </Box>
      )}
      {logLines > 0 && (
        <Box flexDirection="column" width={columns}>
          <Log state={state} lines={logLines} columns={columns} />
        </Box>
      )}
    </Box>
  );
}

function Log({ state, lines, columns }: { state: DashboardState; lines: number; columns: number }) {
  const { logLevel } = state.view;
  const isErrors = logLevel === "error" || logLevel === "warn";
  const shown = shownLog(state).slice(-lines);
  return (
    <>
      <Rule title={isErrors ? "Errors" : "Log"} note={`${logLevel} and worse`} columns={columns} />
      {shown.map((line, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines have no identity
        <Logged key={i} line={line} />
      ))}
      <Blank lines={lines - shown.length} />
    </>
  );
}

function Request({ line, columns }: { line: RequestLine; columns: number }) {
  const { atMs, method, path, status, durationMs, key } = line;
  const tail = `${String(durationMs).padStart(5)} ms ${inCells(key ?? "", 12)}`;
  const look = status >= 500 ? { color: "red" } : status >= 400 ? { color: "yellow" } : {};
  return (
    <Line>
      <Text dimColor>{clockTime(atMs)} </Text>
      {inCells(method, 6)} {inCells(path, Math.min(60, Math.max(10, columns - 18 - tail.length - 4)))}{" "}
      <Text {...look}>{status}</Text>
      <Text dimColor>{tail}</Text>
    </Line>
  );
}

const LEVEL_MARKS: Record<LogLevel, Mark> = {
  error: { sign: "×", word: "error", color: "red" },
  warn: { sign: "!", word: "warn", color: "yellow" },
  info: { sign: " ", word: "info" },
  debug: { sign: " ", word: "debug", color: "gray" },
};

function Logged({ line }: { line: LogLine }) {
  const mark = LEVEL_MARKS[line.level];
  return (
    <Line>
      <Text dimColor>{clockTime(line.atMs)} </Text>
      <Text {...(mark.color ? { color: mark.color } : {})}>
        {mark.sign} {inCells(mark.word, 5)}
      </Text>{" "}
      {escapeControls(line.text)}
    </Line>
  );
}
