/**
 * A row of the benchmarks: `{ name, value, unit?, goal, facts? }`. The value is a ratio unless it has a unit. The goal is
 * `{ atMost: number }` or `{ atLeast: number }`. Facts are further lines for people.
 */

/** Whether the value of a row reaches its goal. Throws for a row without a value or a goal that can be compared. */
export function isMet({ name, value, goal: { atMost, atLeast } }) {
  const bound = atMost ?? atLeast;
  if (!Number.isFinite(value) || !Number.isFinite(bound)) throw new Error(`${name}: nothing to compare`);
  return atMost === undefined ? value >= atLeast : value <= atMost;
}

/** A row as lines of text. */
export function rowText(row) {
  const { name, value, unit, goal, facts = {} } = row;
  const bound = goal.atMost === undefined ? `at least ${goal.atLeast}` : `at most ${goal.atMost}`;
  const shown = unit === undefined ? value.toFixed(2) : `${value.toFixed(1)} ${unit}`;
  const lines = [`${name}: ${shown} (${bound})${isMet(row) ? "" : " MISSED"}`];
  for (const [fact, text] of Object.entries(facts)) lines.push(`  ${fact}: ${text}`);
  return lines.map((line) => `${line}\n`).join("");
}
