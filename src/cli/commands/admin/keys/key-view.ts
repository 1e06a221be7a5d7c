import type { Key } from "../../../../service/admin.ts";
import { type Column, tableLines } from "../../../terminal/table.ts";
import { formatMoment, toSeconds } from "../dates.ts";

/** The facts of a key that `--json` always shows. */
export function keyFacts({ id, name, accountName, group, createdAtMs, expiresAtMs }: Key) {
  return {
    id,
    name,
    account: accountName,
    group,
    created_at: toSeconds(createdAtMs),
    expires_at: expiresAtMs === null ? null : toSeconds(expiresAtMs),
  };
}

/** An existing key in `--json`. Only its first characters are stored, so they identify it. */
export function keyView(key: Key): object {
  return { ...keyFacts(key), prefix: key.prefix, state: key.state };
}

const COLUMNS: readonly Column<Key>[] = [
  { title: "id", of: ({ id }) => id },
  { title: "name", of: ({ name }) => name },
  { title: "prefix", of: ({ prefix }) => prefix },
  { title: "account", of: ({ accountName }) => accountName },
  { title: "group", of: ({ group }) => group },
  { title: "state", of: ({ state }) => state },
  { title: "created", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
  { title: "expires", of: ({ expiresAtMs }) => (expiresAtMs === null ? "never" : formatMoment(expiresAtMs)) },
];

export function keyLines(keys: readonly Key[]): string[] {
  return tableLines(COLUMNS, keys);
}
