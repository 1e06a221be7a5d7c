import { EventEmitter } from "node:events";

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
