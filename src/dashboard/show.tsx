import chalk, { type ColorSupportLevel } from "chalk";
import { render, useInput } from "ink";
import { Dashboard } from "./components/dashboard.tsx";
import type { Key } from "./events.ts";
import { FrameStream, Painter } from "./painter.ts";
import { readKeys } from "./read-keys.ts";
import { DashboardSession } from "./session.ts";
import type { DashboardSource } from "./source.ts";
import type { DashboardState } from "./state/state.ts";

/** The only timer: how often what has happened is shown. Keys are shown at once. */
const FRAME_MS = 500;
/** On a slow or busy machine frames come later, so that they take a twentieth of a core at most; but they come. */
const REST_PER_WORK = 20;
const SLOWEST_FRAME_MS = 1000;

/**
 * Shows the live view until the person quits or `signal` is aborted, and gives the terminal back as it was, also
 * when the process dies of an error. Needs a terminal on both streams.
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
  // Before anybody tells of the error: on the second screen nobody would see it.
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
  // Every frame comes whole, and the painter writes what is new of it: Ink's own way clears the scrollback when
  // the window shrinks, and shows nothing where it believes itself in a pipeline.
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

/** What the terminal says it can show; it knows more of terminals inside terminals than the environment alone. */
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
