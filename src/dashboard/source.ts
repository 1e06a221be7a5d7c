import type { Fact } from "./events.ts";

/** A request of the person to the source. */
export type Intent =
  | { type: "open-detail"; batchId: string }
  | { type: "close-detail" }
  /** Asks for the first image of an item, in at most `box` pixels. */
  | { type: "show-picture"; batchId: string; customId: string; box: { widthPx: number; heightPx: number } }
  | { type: "cancel"; batchId: string }
  | { type: "retry"; batchId: string }
  | { type: "delete-outputs"; batchId: string }
  | { type: "delete-record"; batchId: string }
  | { type: "open-folder"; batchId: string | null }
  /** Signs the person in to the web console, in the browser. */
  | { type: "open-console" }
  | { type: "pause"; isPaused: boolean }
  | { type: "quit" };

/** The actions and facts that a source offers. The dashboard hides everything else. */
export interface Abilities {
  pause: boolean;
  retry: boolean;
  openFolder: boolean;
  openConsole: boolean;
  picture: boolean;
  /** The source reports requests and log lines. Without them their panels are left out. */
  activity: boolean;
  /** The source reports the size and cost of each image. Without them these columns are left out. */
  itemFacts: boolean;
  /** Quitting stops the service, and its work with it. */
  endsService: boolean;
}

/** The origin of the dashboard's facts: the embedded service, or any service over HTTP. */
export interface DashboardSource {
  readonly abilities: Abilities;
  /**
   * Starts to report facts, at any rate: the dashboard collects them and shows them a few times a second. It calls
   * `flush`, where there is one, before each frame, so that a source can read a batch once a frame however often it
   * changed.
   */
  start(report: (fact: Fact) => void): { flush?: () => Promise<void>; stop: () => void };
  /** Carries out an intent and reports the outcome as facts. Throws an error with a message for the person. */
  perform(intent: Intent): Promise<void>;
}
