import { readFile } from "node:fs/promises";
import { Decoding } from "../../imaging/decoding.ts";
import { thumbnail } from "../../imaging/thumbnail.ts";

const EDGE_PX = 256;
/** An answer with more pictures fills the context of a model. */
export const MOST_PREVIEWS = 8;

/** Small pictures of image files, each after its path, as a tool's content. What cannot be read is left out. */
export async function previewsOf(paths: readonly string[]) {
  const decoding = new Decoding();
  const contents = [];
  for (const path of paths.slice(0, MOST_PREVIEWS)) {
    const bytes = await readFile(path).catch(() => null);
    const small = bytes === null ? null : await thumbnail(bytes, EDGE_PX, decoding);
    if (small === null) continue;
    const data = Buffer.from(small).toString("base64");
    contents.push(
      { type: "text", text: path } as const,
      { type: "image", data, mimeType: "image/webp" } as const,
    );
  }
  return contents;
}
