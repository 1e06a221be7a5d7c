import chalk, { Chalk } from "chalk";
import { Box, Text } from "ink";
import type { Batch } from "../../client/answers.ts";
import type { LogLevel, LogLine, RequestLine } from "../../contract/activity.ts";
import type { ItemStatus } from "../../contract/statuses.ts";
import { jobsText, unnamed, waitingText } from "../../contract/waiting.ts";
import { clockTime, formatDuration } from "../../kernel/durations.ts";
import { FREE_DRAWINGS, formatUsd } from "../../kernel/money.ts";
import { escapeControls, formatSize } from "../../kernel/text.ts";
import type { Abilities, ItemRow, Picture } from "../model.ts";
import {
  type DashboardState,
  detailLines,
  imagesPerSecond,
  layoutOf,
  nameOf,
  type Question,
  selectedBatch,
  shownLog,
  timeLeftMs,
} from "../state.ts";
import { dollars, inCells, type Mark, STATUS_MARKS, sparkline } from "../text.ts";
import { BatchTable, markOf } from "./batch-table.tsx";
import { Blank, Line } from "./line.tsx";

const ACCENT = "cyan";

/** The first screen: the service, batches, queue, requests, log and keys. */
function MainScreen({ state }: { state: DashboardState }) {
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
  ["g", () => "go on with a batch that is stopped"],
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

/**
 * Returns a picture as lines of text, centred in `columns` cells. Each cell shows two pixels: the upper one is the colour
 * of a half block, and the lower one is its background. Without colours, each cell is a sign of fitting darkness.
 */
function halfBlockLines(picture: Pick<Picture, "widthPx" | "heightPx" | "rgb">, columns: number): string[] {
  const { widthPx, heightPx } = picture;
  const margin = " ".repeat(Math.max(0, Math.floor((columns - widthPx) / 2)));
  const lines: string[] = [];
  // Sixteen colours are too few for a picture, and nearly every terminal with 16 has 256.
  const colors = new Chalk({ level: chalk.level === 1 ? 2 : chalk.level });
  for (let y = 0; y < heightPx; y += 2) {
    let line = margin;
    for (let x = 0; x < widthPx; x++) {
      const upper = pixelAt(picture, x, y);
      const lower = y + 1 < heightPx ? pixelAt(picture, x, y + 1) : upper;
      line += colors.level === 0 ? shade(upper, lower) : colors.rgb(...upper).bgRgb(...lower)("▀");
    }
    lines.push(line);
  }
  return lines;
}

type Rgb = [number, number, number];

const SHADES = " ░▒▓█";

function shade(upper: Rgb, lower: Rgb): string {
  const light = [...upper, ...lower].reduce((sum, part) => sum + part, 0) / 6;
  return SHADES[Math.min(SHADES.length - 1, Math.floor((light / 256) * SHADES.length))] ?? " ";
}

function pixelAt({ rgb, widthPx }: Pick<Picture, "widthPx" | "rgb">, x: number, y: number): Rgb {
  const at = (y * widthPx + x) * 3;
  return [rgb[at] ?? 0, rgb[at + 1] ?? 0, rgb[at + 2] ?? 0];
}

/** The screen of one batch: its facts, its history and its items. */
function DetailScreen({ state }: { state: DashboardState }) {
  const batch = selectedBatch(state);
  const { columns } = state.size;
  if (batch === null) return <Footer state={state} />;
  const lines = detailLines(state);
  const items = state.detail?.items ?? [];
  const { itemTop, selectedItem } = state.view;
  const shown = items.slice(itemTop, itemTop + lines);
  const mark = markOf(batch);
  const jobs = jobsText(batch.jobs, state.nowMs);
  return (
    <>
      <Line>
        <Text bold>{inCells(nameOf(batch), Math.max(10, columns - 52))}</Text>{" "}
        <Text dimColor>{batch.id}</Text>
      </Line>
      <Line>
        <Text bold {...(mark.color ? { color: mark.color } : {})}>
          {mark.sign} {mark.word}
        </Text>
        {` · ${batch.successCount} of ${batch.itemCount ?? 0} made · ${batch.failCount} failed`}
        {moneyWords(batch)}
      </Line>
      <Line>
        <Text dimColor>
          {escapeControls(batch.model ?? "")}
          {batch.provider === null ? "" : ` · made by ${batch.provider}`}
          {batch.source === null || batch.source === "batch" ? "" : ` · ${batch.source} job`}
          {jobs === null ? "" : ` · ${escapeControls(jobs)}`}
        </Text>
      </Line>
      <Line>
        {batch.error !== null ? (
          <Text color="red">{escapeControls(`${batch.error.code}: ${batch.error.message}`)}</Text>
        ) : batch.waiting !== null ? (
          <Text color="yellow">{escapeControls(waitingText(batch.waiting, state.nowMs))}</Text>
        ) : (
          <History state={state} />
        )}
      </Line>
      <Rule
        title="Items"
        note={items.length === 0 ? "" : `${selectedItem + 1} of ${items.length}`}
        columns={columns}
      />
      <Line>
        <Text dimColor>
          {"  "}
          {itemLine(state, TITLES)}
        </Text>
      </Line>
      {state.detail === null && <Line> reading…</Line>}
      {shown.map((item, i) => (
        <Item
          key={item.customId}
          item={item}
          isPlay={batch.isPlay}
          isSelected={itemTop + i === selectedItem}
          state={state}
        />
      ))}
      <Blank lines={lines - Math.max(shown.length, state.detail === null ? 1 : 0)} />
      <Footer state={state} />
    </>
  );
}

function moneyWords({ actualCostMicroUsd: cost, estimatedCostMicroUsd: estimate, isPlay }: Batch): string {
  if (isPlay) return ` · ${FREE_DRAWINGS}`;
  const words = cost === null ? "" : ` · cost ${dollars(cost, "sum")}`;
  return `${words}${estimate === null ? "" : ` · estimated ${dollars(estimate, "limit")}`}`;
}

function History({ state }: { state: DashboardState }) {
  const history = state.detail?.history;
  if (!history) return <Text> </Text>;
  const words = history.map(({ status, atMs }) => `${STATUS_MARKS[status].word} ${clockTime(atMs)}`);
  return <Text dimColor>{words.join(" → ")}</Text>;
}

const ITEM_MARKS: Record<ItemStatus, Mark> = {
  pending: { sign: "·", word: "pending" },
  success: { sign: "✓", word: "success", color: "green" },
  failed: { sign: "×", word: "failed", color: "red" },
};

function Item(props: { item: ItemRow; isPlay: boolean; isSelected: boolean; state: DashboardState }) {
  const { item, isPlay, isSelected, state } = props;
  const mark = ITEM_MARKS[item.status];
  const text = itemLine(state, {
    id: item.customId,
    status: `${mark.sign} ${mark.word}`,
    size: item.sizeBytes === null ? "–" : formatSize(item.sizeBytes),
    cost: item.status !== "success" ? "–" : isPlay ? "free" : dollars(item.costMicroUsd, "exact"),
    rest: item.error ?? item.prompt,
  });
  return (
    <Line>
      <Text bold={isSelected} inverse={isSelected} {...(item.status === "failed" ? { color: "red" } : {})}>
        {isSelected ? "▸ " : "  "}
        {text}
      </Text>
    </Line>
  );
}

const TITLES = { id: "ITEM", status: "STATUS", size: "SIZE", cost: "COST", rest: "PROMPT, OR WHY IT FAILED" };

function itemLine({ size: { columns }, abilities }: DashboardState, texts: typeof TITLES): string {
  const idWidth = columns >= 120 ? 36 : columns >= 80 ? 20 : 14;
  const facts = abilities.ownsService
    ? ` ${inCells(texts.size, 8, "right")} ${inCells(texts.cost, 7, "right")}`
    : "";
  const restWidth = columns - 2 - idWidth - 10 - (abilities.ownsService ? 17 : 0) - 2;
  return `${inCells(texts.id, idWidth)} ${inCells(texts.status, 9)}${facts}  ${inCells(texts.rest, Math.max(8, restWidth))}`;
}

/** A rule with a title, above a part of the screen: `── Requests ─────`. */
function Rule({ title, note = "", columns }: { title: string; note?: string; columns: number }) {
  const head = `── ${title} `;
  const tail = note === "" ? "" : ` ${note} ──`;
  const fill = "─".repeat(Math.max(0, columns - head.length - tail.length));
  return (
    <Line>
      <Text dimColor>── </Text>
      <Text bold>{title}</Text>
      <Text dimColor>
        {" "}
        {fill}
        {tail}
      </Text>
    </Line>
  );
}

/** The last line: a question, the filter being typed, a message, or the keys. */
function Footer({ state }: { state: DashboardState }) {
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

/** The text of the question, with the keys that answer it. */
function wordsOf(state: DashboardState, question: Question): string {
  const row = question.batchId === null ? undefined : state.batches.get(question.batchId);
  const name = row === undefined ? "this batch" : nameOf(row);
  if (question.kind === "cancel") {
    const bill = row?.isPlay ? "" : " and are billed";
    return `Cancel? y yes, any other key no. Finished images of “${name}” stay${bill}.`;
  }
  if (question.kind === "delete") {
    return `Delete? o image files, r record, any other key nothing. It is “${name}”.`;
  }
  const left = [...state.batches.values()].filter((batch) => !batch.isDone).length;
  return `Quit? y yes, any other key no. ${left} ${left === 1 ? "batch goes" : "batches go"} on at the next start.`;
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

function keysOf(state: DashboardState): KeyHint[] {
  const { view, abilities } = state;
  if (view.screen === "picture")
    return [
      ["↑↓", "other images"],
      ["esc", "back"],
    ];
  if (view.screen === "help") return [["esc", "back"]];
  const goOn: KeyHint[] = [...state.batches.values()].some(({ waiting }) => waiting?.code === "STOPPED")
    ? [["g", "go on"]]
    : [];
  const retry: KeyHint[] = abilities.ownsService ? [["r", "retry"]] : [];
  const web: KeyHint[] = abilities.openConsole ? [["w", "web"]] : [];
  const pause: KeyHint[] = abilities.ownsService ? [["p", "pause"]] : [];
  if (view.screen === "detail") {
    return [
      ["⏎", "view image"],
      ["c", "cancel"],
      ...goOn,
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
    ...goOn,
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
