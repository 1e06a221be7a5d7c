import type { ColorSupportLevel } from "chalk";
import chalk from "chalk";
import { type Key as InkKey, render, useInput } from "ink";
import { Dashboard } from "./components/dashboard.tsx";
import type { DashboardSource } from "./model.ts";
import { FrameStream, Painter } from "./painter.ts";
import { DashboardSession } from "./session.ts";
import type { DashboardState, Key } from "./state.ts";

/** The time between two frames, in the only timer of the dashboard. Keys take effect at once. */
const FRAME_MS = 500;
/** Frames take at most a twentieth of a core: on a slow machine they come later, at least once a second. */
const REST_PER_WORK = 20;
const SLOWEST_FRAME_MS = 1000;

/**
 * Shows the dashboard until the person quits or `signal` is aborted. It restores the terminal afterwards, also when an
 * error ends the process. Both streams must be terminals.
 */
export async function showDashboard(
  source: DashboardSource,
  options: {
    stdin: NodeJS.ReadStream;
    stdout: NodeJS.WriteStream;
    signal: AbortSignal;
    hasColor: boolean;
  },
): Promise<void> {
  const { stdin, stdout, signal } = options;
  chalk.level = options.hasColor ? colorLevel(stdout) : 0;
  const painter = new Painter(stdout);
  const frames = new FrameStream(stdout.columns, (frame) => painter.paint(frame));
  let quit = () => {};
  const left = new Promise<void>((resolve) => {
    quit = resolve;
  });
  const restore = () => painter.close();
  process.on("exit", restore);
  // Node prints the error after this event. On the alternate screen it would be lost.
  process.on("uncaughtExceptionMonitor", restore);
  painter.open();
  const session = new DashboardSession(source, {
    columns: stdout.columns,
    rows: stdout.rows,
    nowMs: Date.now,
    show: (state) => ink.rerender(view(state)),
    onQuit: quit,
  });
  const onKey = (key: Key) => session.now({ type: "key", key });
  const view = (state: DashboardState) => <Screen state={state} onKey={onKey} />;
  // In debug mode Ink writes every frame whole, and the painter writes the lines that changed. Ink's own output clears
  // the scrollback when the window shrinks, and shows nothing where Ink detects a CI environment.
  const inkOptions = { stdin, debug: true, exitOnCtrlC: false, patchConsole: false };
  const ink = render(view(session.state), { ...inkOptions, stdout: frames as unknown as NodeJS.WriteStream });
  const onResize = () => {
    frames.columns = stdout.columns;
    painter.forget();
    session.now({ type: "resize", columns: stdout.columns, rows: stdout.rows });
  };
  stdout.on("resize", onResize);
  let timer: NodeJS.Timeout | undefined;
  const showFrames = () => {
    const beganAt = performance.now();
    session.frame();
    const restMs = (performance.now() - beganAt) * REST_PER_WORK;
    timer = setTimeout(showFrames, Math.min(SLOWEST_FRAME_MS, Math.max(FRAME_MS, restMs)));
  };
  signal.addEventListener("abort", quit, { once: true });
  if (signal.aborted) quit();
  try {
    showFrames();
    await left;
  } finally {
    clearTimeout(timer);
    session.stop();
    stdout.off("resize", onResize);
    signal.removeEventListener("abort", quit);
    painter.close();
    ink.unmount();
    process.off("exit", restore);
    process.off("uncaughtExceptionMonitor", restore);
  }
}

/** Returns the colours that the terminal can show. Node also knows terminals inside terminals. */
function colorLevel(stdout: NodeJS.WriteStream): ColorSupportLevel {
  const depth = stdout.getColorDepth();
  return depth >= 24 ? 3 : depth >= 8 ? 2 : depth >= 4 ? 1 : 0;
}

function Screen({ state, onKey }: { state: DashboardState; onKey: (key: Key) => void }) {
  useInput((input, key) => {
    for (const meaning of readKeys(input, key)) onKey(meaning);
  });
  return <Dashboard state={state} />;
}

/** Returns the meanings of a key press, or an empty list. Letters that arrive together are separate keys. */
function readKeys(input: string, key: InkKey): Key[] {
  const named = nameOf(input, key);
  if (named !== null) return [named];
  if (key.ctrl || key.meta) return [];
  return Array.from(input.replace(/\p{Cc}/gu, ""), (text) => ({ name: "char", text }));
}

const NAMES = {
  upArrow: "up",
  downArrow: "down",
  pageUp: "pageUp",
  pageDown: "pageDown",
  home: "home",
  end: "end",
  return: "enter",
  escape: "escape",
  backspace: "backspace",
  delete: "backspace",
} as const;

function nameOf(input: string, key: InkKey): Key | null {
  if (key.ctrl && input === "c") return { name: "interrupt" };
  const pressed = (Object.keys(NAMES) as (keyof typeof NAMES)[]).find((name) => key[name]);
  return pressed ? { name: NAMES[pressed] } : null;
}
