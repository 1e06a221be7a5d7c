import { EventEmitter } from "node:events";
import type { ColorSupportLevel } from "chalk";
import chalk from "chalk";
import { type Key as InkKey, render, useInput } from "ink";
import { Dashboard } from "./components/dashboard.tsx";
import type { DashboardSource } from "./model.ts";
import type { DashboardState, Key } from "./state.ts";
import { DashboardSession } from "./state.ts";

const SHOW_CURSOR = "\x1b[?25h";
const HIDE_CURSOR = "\x1b[?25l";
const ALTERNATE_SCREEN = `\x1b[?1049h${HIDE_CURSOR}`;
const NORMAL_SCREEN = `${SHOW_CURSOR}\x1b[?1049l`;
const BEGIN_UPDATE = "\x1b[?2026h";
const END_UPDATE = "\x1b[?2026l";

type Screen = Pick<NodeJS.WriteStream, "write" | "columns" | "rows">;

/**
 * Shows whole frames on the terminal's alternate screen, so that the scrollback stays as it is. It writes only the lines
 * that differ from the last frame, in one piece: nothing flickers, and a frame without changes writes nothing.
 */
export class Painter {
  readonly #terminal: Screen;
  #shown: string[] = [];
  #isOpen = false;

  constructor(terminal: Screen) {
    this.#terminal = terminal;
  }

  open(): void {
    this.#isOpen = true;
    this.#terminal.write(ALTERNATE_SCREEN);
    this.forget();
  }

  /** Restores the terminal. It may be called again, and from an exit handler. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#terminal.write(NORMAL_SCREEN);
  }

  /** Clears the window, so that the next frame is written whole: the window has a new size. */
  forget(): void {
    this.#shown = [];
    if (this.#isOpen) this.#terminal.write("\x1b[2J");
  }

  paint(frame: string): void {
    if (!this.#isOpen) return;
    const lines = frame.split("\n").slice(0, this.#terminal.rows);
    const changed: string[] = [];
    for (let i = 0; i < Math.max(lines.length, this.#shown.length); i++) {
      const line = lines[i] ?? "";
      if (line !== this.#shown[i]) changed.push(`\x1b[${i + 1};1H\x1b[0m${line}\x1b[0m\x1b[K`);
    }
    this.#shown = lines;
    if (changed.length > 0) this.#terminal.write(BEGIN_UPDATE + changed.join("") + END_UPDATE);
  }
}

/** A stream for Ink that passes each whole frame to `onFrame`. Its width is set from outside. */
export class FrameStream extends EventEmitter {
  readonly isTTY = true;
  readonly rows = Number.POSITIVE_INFINITY;
  columns: number;
  readonly #onFrame: (frame: string) => void;

  constructor(columns: number, onFrame: (frame: string) => void) {
    super();
    this.columns = columns;
    this.#onFrame = onFrame;
  }

  write(text: string): boolean {
    // Ink shows and hides the cursor through this stream, too. The painter already does that.
    if (text !== SHOW_CURSOR && text !== HIDE_CURSOR) this.#onFrame(dropControls(text));
    return true;
  }
}

/** All control characters but line breaks and the sequences for colours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
const FRAME_CONTROLS = /(\n|\x1b\[[\d;]*m)|[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** Removes all control characters but line breaks and colours. For a frame of the live view, which is laid out already. */
function dropControls(frame: string): string {
  return frame.replace(FRAME_CONTROLS, "$1");
}

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
