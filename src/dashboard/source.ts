import type { Fact } from "./events.ts";

/** What a person can ask the service to do from the live view. */
export type Intent =
  | { type: "open-detail"; batchId: string }
  | { type: "close-detail" }
  | { type: "show-picture"; batchId: string; customId: string; columns: number; rows: number }
  | { type: "cancel"; batchId: string }
  | { type: "retry"; batchId: string }
  | { type: "delete-outputs"; batchId: string }
  | { type: "delete-record"; batchId: string }
  | { type: "open-folder"; batchId: string | null }
  | { type: "pause"; isPaused: boolean }
  | { type: "quit" };

/** Which of the keys a source can serve; the others are not offered. */
export interface Abilities {
  pause: boolean;
  retry: boolean;
  openFolder: boolean;
  picture: boolean;
  /** Requests and log lines are told; else their panels are left out. */
  activity: boolean;
  /** Sizes and costs of single images are told; else their columns are left out. */
  itemFacts: boolean;
  /** Quitting stops the service, so that work stops too. */
  endsService: boolean;
}

/** Where the live view gets its facts: the service of this process, or any service over HTTP. */
export interface DashboardSource {
  readonly abilities: Abilities;
  /**
   * Begins to tell. Events may come at any rate; they are gathered and shown a few times a second. `flush` of the
   * answer is called before each showing, so that a source can read what changed once and not for each change.
   */
  start(tell: (fact: Fact) => void): { flush?: () => Promise<void>; stop: () => void };
  /** Does what was asked; tells the outcome as events. Throws with a message for the person. */
  perform(intent: Intent): Promise<void>;
}
