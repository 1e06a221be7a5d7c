/** The address of a place in the console: `#/batches/imgbatch_1/fox` has the parts `batches`, `imgbatch_1`, `fox`. */
export function hrefOf(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
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
