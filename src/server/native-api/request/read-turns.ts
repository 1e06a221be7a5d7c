import type { Limits } from "../../../contract/limits.ts";
import type { GenerateContentRequest } from "../../../contract/native-api.ts";
import { isLongerThan, truncateCodePoints } from "../../../kernel/text.ts";
import { fieldError } from "../../request-problems.ts";

type Contents = GenerateContentRequest["contents"];

/** Messages of the user without a message of the model between them. */
interface Turn {
  /** The index of its first message. */
  start: number;
  text: string;
}

/** An absent role is the user's. */
export const isFromUser = ({ role }: Contents[number]): boolean => role !== "model";

/**
 * The texts of a conversation. `prompt` is the user's last turn with a text; the limit on prompts applies to it alone.
 * `earlier` has the turns before, cut to the same length: the oldest are dropped first.
 * Throws `REALTIME_INVALID_ARGUMENT` when there is no text, or too much of it.
 */
export function readTurns(
  contents: Contents,
  { promptChars }: Pick<Limits, "promptChars">,
): { prompt: string; earlier: string } {
  const turns = turnsOf(contents);
  const spoken = turns.filter(({ text }) => text !== "");
  const last = spoken.pop();
  if (last === undefined) {
    const at = `contents[${turns[0]?.start ?? 0}].parts`;
    throw fieldError("REALTIME_INVALID_ARGUMENT", at, "need a text: what to draw, or how to edit");
  }
  if (isLongerThan(last.text, promptChars)) {
    const problem = `the text has more than the ${promptChars} characters that are allowed`;
    throw fieldError("REALTIME_INVALID_ARGUMENT", `contents[${last.start}].parts`, problem);
  }
  return { prompt: last.text, earlier: newest(spoken, promptChars) };
}

function turnsOf(contents: Contents): Turn[] {
  const turns: { start: number; texts: string[] }[] = [];
  contents.forEach((message, i) => {
    if (!isFromUser(message)) return;
    const previous = contents[i - 1];
    if (previous === undefined || !isFromUser(previous)) turns.push({ start: i, texts: [] });
    for (const { text } of message.parts ?? []) {
      if (text != null && text.trim() !== "") turns.at(-1)?.texts.push(text.trim());
    }
  });
  return turns.map(({ start, texts }) => ({ start, text: texts.join("\n") }));
}

/** Whole turns, as many of the newest as fit. */
function newest(turns: readonly Turn[], maxChars: number): string {
  let earlier = "";
  for (const { text } of turns.toReversed()) {
    const longer = earlier === "" ? text : `${text}\n${earlier}`;
    if (isLongerThan(longer, maxChars)) return earlier || truncateCodePoints(text, maxChars);
    earlier = longer;
  }
  return earlier;
}
