/** Lets the browser save bytes under a name. */
export function saveBlob(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  saveLink(url, name);
  // The browser reads the bytes after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Lets the browser save what a link leads to. */
export function saveLink(href: string, name: string): void {
  const link = document.createElement("a");
  link.href = href;
  link.download = name;
  link.click();
}
