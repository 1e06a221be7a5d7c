import type { ReactNode } from "react";
import { Icon } from "./icons.tsx";
import { useSearchKey } from "./use-keys.ts";

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
