import { nameOf, selectedBatch } from "./batches.ts";
import type { Key } from "./input.ts";
import type { DashboardState, Pressed, Question } from "./state.ts";

/** Asks before an action that cannot be undone. Before quitting it asks only if that stops work. */
export function ask(state: DashboardState, kind: Question["kind"]): Pressed {
  const isBusy = [...state.batches.values()].some((row) => !row.isDone);
  if (kind === "quit" && !(isBusy && state.abilities.ownsService)) return { state, intent: { type: "quit" } };
  return withQuestion(state, { kind, batchId: selectedBatch(state)?.id ?? null });
}

/** Reads the answer: a letter that the question names, or no for any other key. */
export function answerQuestion(state: DashboardState, question: Question, key: Key): Pressed {
  const answered = withQuestion(state, null).state;
  const letter = key.name === "char" ? key.text.toLowerCase() : "";
  const { kind, batchId } = question;
  if (kind === "quit" && (letter === "y" || letter === "q"))
    return { state: answered, intent: { type: "quit" } };
  if (batchId === null) return { state: answered, intent: null };
  if (kind === "cancel" && letter === "y") return { state: answered, intent: { type: "cancel", batchId } };
  if (kind === "delete" && letter === "o")
    return { state: answered, intent: { type: "delete-outputs", batchId } };
  if (kind === "delete" && letter === "r")
    return { state: answered, intent: { type: "delete-record", batchId } };
  return { state: answered, intent: null };
}

/** The text of the question, with the keys that answer it. */
export function wordsOf(state: DashboardState, question: Question): string {
  const row = question.batchId === null ? undefined : state.batches.get(question.batchId);
  const name = row === undefined ? "this batch" : nameOf(row);
  if (question.kind === "cancel") {
    const bill = row?.isPlay ? "" : " and are billed";
    return `Cancel? y yes, any other key no. Finished images of “${name}” stay${bill}.`;
  }
  if (question.kind === "delete") {
    return `Delete? o image files, r record, any other key nothing. It is “${name}”.`;
  }
  const left = [...state.batches.values()].filter((batch) => !batch.isDone).length;
  return `Quit? y yes, any other key no. ${left} ${left === 1 ? "batch goes" : "batches go"} on at the next start.`;
}

function withQuestion(state: DashboardState, question: Question | null): Pressed {
  // A question replaces the last message.
  return { state: { ...state, view: { ...state.view, question, message: null } }, intent: null };
}
