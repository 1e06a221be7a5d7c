import { useCallback, useEffect, useRef, useState } from "react";
import {
  REVIEW_PATHS,
  type ReviewAnswer,
  type ReviewDecision,
  type ReviewLine,
  type ReviewObject,
  type ReviewUndone,
} from "../../../contract/review-api.ts";
import { fetchJson, send } from "../../api/request.ts";

/** How a line stands in the review. */
export const STATES = ["undecided", "keep", "again", "drop", "failed"] as const;
export type State = (typeof STATES)[number];

/** How a state is called above the gallery and on a picture. */
export const STATE_WORDS: Record<State, string> = {
  undecided: "undecided",
  keep: "kept",
  again: "again",
  drop: "dropped",
  failed: "failed",
};

/** Returns how a line stands. One without a picture has failed, and there is nothing to decide on. */
export function stateOf({ images, decision }: ReviewLine): State {
  if (images.length === 0) return "failed";
  return decision?.verdict ?? "undecided";
}

/** Returns the picture that stands for a line: the chosen one, else the first. */
export function shownImage({ images, earlier, decision }: ReviewLine) {
  return [...images, ...earlier].find(({ version }) => version === decision?.chosen) ?? images[0] ?? null;
}

interface Review {
  /** Null before it is known. */
  review: ReviewObject | null;
  /** Why the last reading or writing failed; null when it did not. */
  error: Error | null;
  /** Decides about a line that has pictures: at once in the page, and on disk a moment later. */
  decide: (line: ReviewLine, decision: ReviewDecision) => void;
  /** Takes the last decision back. Returns the id of its line; null when there is none left. Throws when it cannot. */
  undo: () => Promise<string | null>;
}

/** The run may be changed meanwhile, by `retry` for example. */
const POLL_EVERY_MS = 4000;

/** The run with its decisions, kept up to date. */
export function useReview(): Review {
  const [review, setReview] = useState<ReviewObject | null>(null);
  const [error, setError] = useState<Error | null>(null);
  /** The decisions so far, and those of them that are not on disk yet: an answer from before them knows too little. */
  const decisions = useRef(0);
  const unsaved = useRef(0);
  const lastText = useRef("");
  const saving = useRef<Promise<unknown>>(Promise.resolve());

  const read = useCallback(async () => {
    const seen = decisions.current;
    try {
      const text = await (await send(REVIEW_PATHS.review)).text();
      if (seen !== decisions.current || unsaved.current > 0) return;
      setError(null);
      if (text === lastText.current) return;
      lastText.current = text;
      setReview(JSON.parse(text) as ReviewObject);
    } catch (thrown) {
      setError(thrown as Error);
    }
  }, []);

  useEffect(() => {
    void read();
    const again = () => {
      if (!document.hidden) void read();
    };
    const timer = setInterval(again, POLL_EVERY_MS);
    addEventListener("focus", again);
    return () => {
      clearInterval(timer);
      removeEventListener("focus", again);
    };
  }, [read]);

  /** Writes one after the other: the last decision counts. */
  const save = useCallback(<T>(write: () => Promise<T>): Promise<T> => {
    decisions.current++;
    unsaved.current++;
    lastText.current = "";
    const saved = saving.current.then(write).finally(() => unsaved.current--);
    saving.current = saved.catch(() => {});
    return saved;
  }, []);

  /** What is not on disk is not decided. */
  const reset = useCallback(
    async (failure: Error | null) => {
      await saving.current;
      await read();
      if (failure !== null) setError(failure);
    },
    [read],
  );

  const decide = useCallback(
    ({ id, images }: ReviewLine, decision: ReviewDecision) => {
      setReview((old) => old && withDecision(old, id, decision));
      const answer: ReviewAnswer = { id, versions: images.map(({ version }) => version), decision };
      // The decision arrives even if the person closes the page at once.
      const call = { method: "POST", json: answer, keepalive: true };
      save(() => send(REVIEW_PATHS.decisions, call)).catch(reset);
    },
    [save, reset],
  );

  const undo = useCallback(async () => {
    try {
      const { id } = await save(() => fetchJson<ReviewUndone>(REVIEW_PATHS.undo, { method: "POST" }));
      await reset(null);
      return id;
    } catch (failure) {
      await reset(failure as Error);
      throw failure;
    }
  }, [save, reset]);

  return { review, error, decide, undo };
}

function withDecision(review: ReviewObject, id: string, decision: ReviewDecision): ReviewObject {
  return { ...review, lines: review.lines.map((line) => (line.id === id ? { ...line, decision } : line)) };
}
