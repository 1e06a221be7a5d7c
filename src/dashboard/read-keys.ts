import type { Key } from "./state/input.ts";

/** The part of Ink's report of a key press that counts here. */
interface InkKey {
  upArrow: boolean;
  downArrow: boolean;
  pageUp: boolean;
  pageDown: boolean;
  home?: boolean;
  end?: boolean;
  return: boolean;
  escape: boolean;
  backspace: boolean;
  delete: boolean;
  ctrl: boolean;
  meta: boolean;
}

/** Returns the meanings of a key press, or an empty list. Letters that arrive together are separate keys. */
export function readKeys(input: string, key: InkKey): Key[] {
  const named = nameOf(input, key);
  if (named !== null) return [named];
  if (key.ctrl || key.meta) return [];
  return Array.from(input.replace(/\p{Cc}/gu, ""), (text) => ({ name: "char", text }));
}

function nameOf(input: string, key: InkKey): Key | null {
  if (key.ctrl && input === "c") return { name: "interrupt" };
  if (key.upArrow) return { name: "up" };
  if (key.downArrow) return { name: "down" };
  if (key.pageUp) return { name: "pageUp" };
  if (key.pageDown) return { name: "pageDown" };
  if (key.home) return { name: "home" };
  if (key.end) return { name: "end" };
  if (key.return) return { name: "enter" };
  if (key.escape) return { name: "escape" };
  if (key.backspace || key.delete) return { name: "backspace" };
  return null;
}
