import type { DashboardEvent, Fact } from "./events.ts";
import type { DashboardSource, Intent } from "./source.ts";
import { reduce, reduceFacts } from "./state/reduce.ts";
import { type DashboardState, initialState } from "./state/state.ts";

/**
 * The live view without its looks: gathers what the source tells, turns it into states a few times a second, and
 * takes what the person asks to the source. `show` is called with each new state.
 */
export class DashboardSession {
  state: DashboardState;
  readonly #source: DashboardSource;
  readonly #show: (state: DashboardState) => void;
  readonly #nowMs: () => number;
  readonly #waiting: Fact[] = [];
  readonly #running: { flush?: () => Promise<void>; stop: () => void };
  readonly #onQuit: () => void;

  constructor(
    source: DashboardSource,
    start: {
      columns: number;
      rows: number;
      nowMs: () => number;
      show: (state: DashboardState) => void;
      onQuit: () => void;
    },
  ) {
    this.#source = source;
    this.#show = start.show;
    this.#nowMs = start.nowMs;
    this.#onQuit = start.onQuit;
    const { columns, rows } = start;
    const empty = initialState({ nowMs: start.nowMs(), columns, rows, abilities: source.abilities });
    this.#running = source.start((event) => this.#waiting.push(event));
    // What the source tells at once is in the first picture already.
    this.state = reduceFacts(empty, this.#waiting.splice(0));
  }

  /** Shows what has happened since the last frame. Called by the one timer of the view. */
  frame(): void {
    this.#running.flush?.().catch((error: unknown) => this.#tellFailure(error));
    const before = this.state;
    const facts = this.#waiting.splice(0);
    const nowMs = this.#nowMs();
    if (Math.floor(nowMs / 1000) !== Math.floor(before.nowMs / 1000)) facts.push({ type: "tick", nowMs });
    this.state = reduceFacts(before, facts);
    if (this.state !== before) this.#show(this.state);
  }

  /** Shows an event at once: a key, or a new size of the window. */
  now(event: DashboardEvent): void {
    const { state, intent } = reduce(this.state, event);
    this.state = state;
    if (intent !== null) this.#perform(intent);
    this.#show(this.state);
  }

  stop(): void {
    this.#running.stop();
  }

  #perform(intent: Intent): void {
    if (intent.type === "quit") {
      this.#onQuit();
      return;
    }
    this.#source.perform(intent).catch((error: unknown) => this.#tellFailure(error));
  }

  #tellFailure(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.#waiting.push({ type: "message", text, isError: true });
  }
}
