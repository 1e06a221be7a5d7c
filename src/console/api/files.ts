import { HEADER_BYTES, type ImageMimeType, readImageHeader } from "../../contract/image-formats.ts";
import { OTHER_TYPE, tooLarge } from "../../prompts/problems.ts";

/** The bytes of standard Base64. Throws for other text. */
export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The bytes of a file as standard Base64. */
export function base64Of(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** An image that a person gave to start from. */
export interface ReferenceFile {
  name: string;
  blob: Blob;
  mimeType: ImageMimeType;
  /** 0 when nobody has looked. */
  pixels: number;
  /** An object URL, to show it. */
  url: string;
  /** Of its bytes, in hexadecimal. Absent where the browser does not compute it: outside of secure contexts. */
  sha256?: string;
}

/** Looks at the first bytes of a file. Returns the problem of a file that cannot be a reference image. */
export async function readReference(file: File, maxBytes: number): Promise<ReferenceFile | string> {
  if (file.size > maxBytes) return `${file.name} ${tooLarge(file.size, maxBytes)}`;
  const head = await file
    .slice(0, HEADER_BYTES)
    .arrayBuffer()
    .catch(() => null);
  if (head === null) return `${file.name} cannot be read`;
  const header = readImageHeader(new Uint8Array(head));
  if (header === null) return `${file.name} ${OTHER_TYPE}`;
  const { mimeType, widthPx, heightPx } = header;
  if (!widthPx || !heightPx) return `${file.name} is a damaged image: its header gives no size`;
  return {
    name: file.name,
    blob: file,
    mimeType,
    pixels: widthPx * heightPx,
    url: URL.createObjectURL(file),
    ...(await hashOf(file)),
  };
}

async function hashOf(file: Blob): Promise<Pick<ReferenceFile, "sha256">> {
  if (!crypto.subtle) return {};
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return { sha256: [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("") };
}

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

const NO_CLIPBOARD = "The browser lets only pages under https or of this machine copy.";

/** Puts text into the clipboard. Throws an error with a message for people. */
export async function copyText(text: string): Promise<void> {
  if (!navigator.clipboard) throw new Error(NO_CLIPBOARD);
  await navigator.clipboard.writeText(text);
}

/** Puts an image into the clipboard, as PNG, which is what clipboards take. Throws the same. */
export async function copyImage(image: Blob): Promise<void> {
  if (!navigator.clipboard) throw new Error(NO_CLIPBOARD);
  const png = image.type === "image/png" ? image : await toPng(image);
  await navigator.clipboard.write([new ClipboardItem({ "image/png": png })]);
}

async function toPng(image: Blob): Promise<Blob> {
  const bitmap = await createImageBitmap(image);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
