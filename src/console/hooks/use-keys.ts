import { useEffect, useRef } from "react";

type Handlers = Record<string, (event: KeyboardEvent) => void>;

/**
 * Calls the handler of a key (`KeyboardEvent.key`) that is pressed outside of fields. A page's keys rest while a dialog is open,
 * unless they are the dialog's own (`inDialog`).
 */
export function useKeys(handlers: Handlers, { inDialog = false, isActive = true } = {}): void {
  const latest = useRef(handlers);
  latest.current = handlers;
  useEffect(() => {
    if (!isActive) return;
    const listen = (event: KeyboardEvent) => {
      const handler = latest.current[event.key];
      if (!handler || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isField(event.target) && event.key !== "Escape") return;
      if ((document.querySelector("dialog[open]") !== null) !== inDialog) return;
      handler(event);
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [inDialog, isActive]);
}

function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.matches("input:not([type=checkbox], [type=button]), textarea, select, [contenteditable]");
}
