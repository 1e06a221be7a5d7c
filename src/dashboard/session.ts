import type { DashboardSource, Fact, Intent } from "./model.ts";
import { reduce, reduceChanges } from "./reduce.ts";
import { type Change, type DashboardEvent, type DashboardState, initialState } from "./state.ts";

/**
 * The dashboard without its looks. It collects the facts of the source, turns them into a new state a few times a second,
 * and passes the person's requests to the source. It calls `show` with each new state.
 */
export class DashboardSession {
  state: DashboardState;
  readonly #source: DashboardSource;
  readonly #show: (state: DashboardState) => void;
  readonly #nowMs: () => number;
  readonly #waiting: Fact[] = [];
  readonly #stop: () => void;
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
    this.#stop = source.start((event) => this.#waiting.push(event));
    // The first frame already shows the facts that the source reported at once.
    this.state = reduceChanges(empty, this.#waiting.splice(0));
  }

  /** Shows everything that happened since the last frame. The one timer of the dashboard calls it. */
  frame(): void {
    const before = this.state;
    const changes: Change[] = this.#waiting.splice(0);
    const nowMs = this.#nowMs();
    if (Math.floor(nowMs / 1000) !== Math.floor(before.nowMs / 1000)) changes.push({ type: "tick", nowMs });
    this.state = reduceChanges(before, changes);
    if (this.state !== before) this.#show(this.state);
  }

  /** Shows the effect of an event at once: of a key, or of a new window size. */
  now(event: DashboardEvent): void {
    const { state, intent } = reduce(this.state, event);
    this.state = state;
    if (intent !== null) this.#perform(intent);
    this.#show(this.state);
  }

  stop(): void {
    this.#stop();
  }

  #perform(intent: Intent): void {
    if (intent.type === "quit") {
      this.#onQuit();
      return;
    }
    this.#source.perform(intent).catch((error: unknown) => this.#showFailure(error));
  }

  #showFailure(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.#waiting.push({ type: "message", text, isError: true });
  }
}
