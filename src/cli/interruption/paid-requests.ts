import { counted } from "../../kernel/text.ts";

/**
 * Returns the line for a person whose service stops while `paid` requests run that cost money; null when none does.
 * `how`: the keys that end the process at once.
 */
export function paidRequestsNote(
  paid: number,
  how: "Ctrl-C" | "Ctrl-C twice" | "a second Ctrl-C",
): string | null {
  if (paid === 0) return null;
  const [are, they, them] = paid === 1 ? ["is", "it", "it"] : ["are", "they", "them"];
  const waiting = `stopping: waiting for ${counted(paid, "request")} that ${are} paid`;
  return `${waiting}; ${how} abandons ${them}, and then ${they} may be paid twice`;
}

/** Returns the advice after `paid` requests that cost money were abandoned; undefined when there was none. */
export function abandonedAdvice(paid: number): string | undefined {
  if (paid === 0) return undefined;
  const requests = paid === 1 ? "the abandoned request" : `the ${paid} abandoned requests`;
  return `run the same command again: it continues where it stopped. It sends ${requests} once more, and ${paid === 1 ? "that image" : "those images"} may be paid twice`;
}
