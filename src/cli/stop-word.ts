import { ImgbatchError } from "../contract/errors.ts";

const WORDS: Readonly<Record<string, string>> = {
  INTERRUPTED: "Interrupted",
  TERMINATED: "Terminated",
  TIMEOUT: "Time is up",
};

/** How a sentence about a stop (signal, time) begins; null for any other error. */
export function stopWord(error: unknown): string | null {
  if (!(error instanceof ImgbatchError) || !Object.hasOwn(WORDS, error.code)) return null;
  return WORDS[error.code] ?? null;
}
