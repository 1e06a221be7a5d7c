import { Box, Text } from "ink";
import { LOG_LEVELS, type LogLine, type RequestLine } from "../../contract/activity.ts";
import { clockTime } from "../../kernel/durations.ts";
import { escapeControls } from "../../kernel/text.ts";
import { layoutOf } from "../state/layout.ts";
import type { DashboardState } from "../state/state.ts";
import { inCells } from "../text/format.ts";
import { LEVEL_MARKS } from "../theme.ts";
import { Blank, Line, Rule } from "./line.tsx";

/** The latest requests and log lines, side by side in a wide window. */
export function Activity({ state }: { state: DashboardState }) {
  const { requestLines, logLines, isWide } = layoutOf(state);
  if (requestLines === 0) return null;
  const columns = isWide ? Math.floor((state.size.columns - 2) / 2) : state.size.columns;
  const requests = state.requests.slice(-requestLines);
  return (
    <Box flexDirection={isWide ? "row" : "column"} gap={isWide ? 2 : 0}>
      <Box flexDirection="column" width={columns}>
        <Rule title="Requests" columns={columns} />
        {requests.map((line, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines have no identity
          <Request key={i} line={line} columns={columns} />
        ))}
        <Blank lines={requestLines - requests.length} />
      </Box>
      <Box flexDirection="column" width={columns}>
        <Problems state={state} lines={logLines} columns={columns} />
      </Box>
    </Box>
  );
}

function Problems({ state, lines, columns }: { state: DashboardState; lines: number; columns: number }) {
  const { logLevel } = state.view;
  const isErrors = logLevel === "error" || logLevel === "warn";
  const wanted = LOG_LEVELS.slice(0, LOG_LEVELS.indexOf(logLevel) + 1);
  const shown = state.log.filter((line) => wanted.includes(line.level)).slice(-lines);
  return (
    <>
      <Rule title={isErrors ? "Errors" : "Log"} note={`${logLevel} and worse`} columns={columns} />
      {shown.length === 0 && (
        <Line>
          <Text dimColor>{isErrors ? "none" : "nothing yet"}</Text>
        </Line>
      )}
      {shown.map((line, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines have no identity
        <Logged key={i} line={line} />
      ))}
      <Blank lines={lines - Math.max(1, shown.length)} />
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
      {inCells(method, 6)} {inCells(path, Math.max(10, columns - 18 - tail.length - 4))}{" "}
      <Text {...look}>{status}</Text>
      <Text dimColor>{tail}</Text>
    </Line>
  );
}

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
