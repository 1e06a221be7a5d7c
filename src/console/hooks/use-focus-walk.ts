import { useKeys } from "./use-keys.ts";

/**
 * Lets `j` and `k` move the focus over the elements of a list that match a selector. The arrow keys do so once one of
 * them has the focus.
 */
export function useFocusWalk(selector: string): void {
  const walk =
    (step: number, mustBeThere = false) =>
    (event: KeyboardEvent) => {
      const elements = [...document.querySelectorAll<HTMLElement>(selector)];
      const at = elements.indexOf(document.activeElement as HTMLElement);
      if (at < 0 && mustBeThere) return;
      const next = elements[at < 0 ? 0 : Math.min(elements.length - 1, Math.max(0, at + step))];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    };
  useKeys({ j: walk(1), k: walk(-1), ArrowDown: walk(1, true), ArrowUp: walk(-1, true) });
}
