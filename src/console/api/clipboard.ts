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
