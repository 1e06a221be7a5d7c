import { type ReactNode, type RefObject, useEffect, useRef } from "react";
import { Dialog } from "./dialog.tsx";
import { Icon } from "./notes.tsx";

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
      // The key may have opened a dialog with a field, which would take its letter.
      if (event.key.length === 1 && event.key !== " ") event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [inDialog, isActive]);
}

function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.matches("input:not([type=checkbox], [type=button]), textarea, select, [contenteditable]");
}

/** Keys, with two spaces between those that do the same, and what they do. */
export type KeyHelp = readonly (readonly [keys: string, meaning: string])[];

/** Shows what keys do. */
export function HelpDialog({ keys, onClose }: { keys: KeyHelp; onClose: () => void }) {
  return (
    <Dialog label="Shortcuts" className="small" onClose={onClose}>
      <h2>Shortcuts</h2>
      <dl className="keys">
        {keys.map(([pressed, meaning]) => (
          <div key={pressed}>
            <dt>
              {pressed.split(/ {2}/).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** A reference for the search field of a page, which `/` goes to. */
function useSearchKey(): RefObject<HTMLInputElement | null> {
  const field = useRef<HTMLInputElement>(null);
  useKeys({
    "/": (event) => {
      event.preventDefault();
      field.current?.select();
      field.current?.focus();
    },
  });
  return field;
}

/** A field that narrows a list while it is typed into. `/` goes to it, Escape clears it. */
export function SearchField(props: { label: string; value: string; onChange: (value: string) => void }) {
  const { label, value, onChange } = props;
  const field = useSearchKey();
  return (
    <span className="search">
      <span className="search-icon">
        <Icon name="search" />
      </span>
      <input
        ref={field}
        type="search"
        aria-label={label}
        placeholder={`${label} ( / )`}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          onChange("");
          event.currentTarget.blur();
        }}
      />
    </span>
  );
}

/** A table that may be wider than the window: it scrolls by itself, also with the keys. */
export function ScrollingTable({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without the focus, keys could not scroll it.
    <section className="table-scroll" aria-label={label} tabIndex={0}>
      <table className="table">{children}</table>
    </section>
  );
}
