import type { Trouble } from "../ports/image-provider.ts";

/** Tries of one item in all that the upstream reported as failed, the first included. */
export const MAX_ATTEMPTS = 3;

/**
 * The meaning of a trouble for the item.
 * - `again`: nothing was made, and the item is not at fault. It waits as long as it must.
 * - `counted`: nothing was made. The item has `MAX_ATTEMPTS` tries.
 * - `once-more`: an image may have been made and paid. One more request is sent, and the item is marked.
 */
type ItemRule = "again" | "counted" | "once-more";

const ITEM_RULES: Readonly<Record<Trouble, ItemRule>> = {
  credential: "again",
  billing: "again",
  forbidden: "again",
  "no-model": "again",
  limited: "again",
  unreachable: "again",
  failing: "counted",
  ambiguous: "once-more",
};

/**
 * Returns the rule for a failure. Without costs an ambiguous failure is like any other. The first request after a pause
 * does not count: it was sent to learn whether the upstream is well.
 */
export function itemRule(
  trouble: Trouble,
  { isPaid, isProbe }: { isPaid: boolean; isProbe: boolean },
): ItemRule {
  const rule = trouble === "ambiguous" && !isPaid ? "counted" : ITEM_RULES[trouble];
  return rule === "counted" && isProbe ? "again" : rule;
}
