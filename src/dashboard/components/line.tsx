import { Text } from "ink";
import type { ReactNode } from "react";

/** One line of the screen. It never wraps; its end is cut off. */
export function Line({ children }: { children: ReactNode }) {
  return <Text wrap="truncate-end">{children}</Text>;
}

/** Empty lines that keep the parts below in place; none for a number below one. */
export function Blank({ lines }: { lines: number }) {
  return Array.from({ length: Math.max(0, lines) }, (_, i) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: empty lines are all alike
    <Line key={i}> </Line>
  ));
}
