import type { ReactNode } from "react";

/** A table that may be wider than the window: it scrolls by itself, also with the keys. */
export function ScrollingTable({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without the focus, keys could not scroll it.
    <section className="table-scroll" aria-label={label} tabIndex={0}>
      <table className="table">{children}</table>
    </section>
  );
}
