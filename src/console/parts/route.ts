import { useSyncExternalStore } from "react";

/** The address of a place in the console: `#/batches/imgbatch_1/fox` has the parts `batches`, `imgbatch_1`, `fox`. */
export function hrefOf(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Between ids in an address: no id has it, and it needs no encoding. */
const BETWEEN = "~";

/** The address of batches that are shown as one. */
export function batchesHref(ids: readonly string[], ...rest: string[]): string {
  return hrefOf("batches", ids.join(BETWEEN), ...rest);
}

/** The ids in a part of such an address. */
export function batchIdsOf(part: string): string[] {
  return [...new Set(part.split(BETWEEN))];
}

/** Goes to a place. `replace` leaves no entry in the history. */
export function go(href: string, { replace = false } = {}): void {
  if (replace) {
    history.replaceState(null, "", href);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = href;
  }
}

/** The place that the address names now. */
export function useRoute(): readonly string[] {
  const hash = useSyncExternalStore(
    (listener) => {
      addEventListener("hashchange", listener);
      return () => removeEventListener("hashchange", listener);
    },
    () => location.hash,
  );
  return hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
