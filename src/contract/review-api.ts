import { PATHS } from "./routes.ts";

/** The paths of what `imgbatch review` serves to its page, from the address of the page on. */
export const REVIEW_PATHS = {
  /** `POST` with a one-time code begins a session, as in the console of a service. */
  sessions: PATHS.consoleSessions,
  /** `GET`: a `ReviewObject`. */
  review: "/v1/review",
  /** `POST` a `ReviewAnswer`: it is on disk when the answer comes. */
  decisions: "/v1/review/decisions",
  /** `POST` takes the last decision of the page back. Returns a `ReviewUndone`. */
  undo: "/v1/review/undo",
  /** `GET` the bytes of a picture of the run, whole or made small by `?width=`. */
  image: (sha256: string) => `/v1/review/images/${sha256}`,
};

/** `keep`: it is good. `again`: make another one, which `retry --rejected` does. `drop`: it is not wanted at all. */
export const VERDICTS = ["keep", "again", "drop"] as const;
export type Verdict = (typeof VERDICTS)[number];

/** A run as its review shows it. */
export interface ReviewObject {
  object: "review";
  /** The name of the run's directory. */
  title: string;
  /** The command that makes the pictures again that are decided so. */
  retry: string;
  /** In the order of the prompts. */
  lines: ReviewLine[];
}

/** A line of the prompts with its pictures. */
export interface ReviewLine {
  id: string;
  prompt: string;
  /** The images of the line that are in this directory. */
  images: ReviewImage[];
  /** Why the line has no picture here, or not all; null if it has. */
  error: { code: string; message: string } | null;
  /** Differences that a person should know. */
  notes: string[];
  /** What looks odd about its pictures. */
  odd: string[];
  /** What is known of the line besides: model, options, cost. */
  facts: [name: string, text: string][];
  /** Earlier versions, the newest first. */
  earlier: EarlierImage[];
  /** The pictures that these were made from. */
  references: ReviewPicture[];
  /** Null: undecided, or decided about pictures that were made again since. */
  decision: ReviewDecision | null;
}

/** A picture in the directory of the run. */
export interface ReviewPicture {
  sha256: string;
  /** Pixels; null when they are not known. */
  width: number | null;
  height: number | null;
}

export interface ReviewImage extends ReviewPicture {
  /** The `custom_id` of the image. */
  id: string;
  /** Its place among the images of the line, from 1. */
  number: number;
  /** The SHA-256 of the picture as it was made, which a conversion changes: what decisions name it by. */
  version: string;
}

interface EarlierImage extends ReviewPicture {
  version: string;
  /** Why it was made again; "" when that is not known. */
  words: string;
}

/** What counts for the pictures of a line that are here. */
export interface ReviewDecision {
  verdict: Verdict;
  /** The version of the chosen one of several images; null: none was chosen. */
  chosen: string | null;
  /** What should change; "" for nothing said. */
  words: string;
}

/** What a person decides about a line: about all its images, or, with `chosen`, about one of them. */
export interface ReviewAnswer {
  id: string;
  /** The versions that the person saw. */
  versions: string[];
  decision: ReviewDecision;
}

/** The line of the decision that was taken back; null when there was none left. */
export interface ReviewUndone {
  id: string | null;
}
