import { Decoding } from "../../imaging/decoding.ts";
import { thumbnail } from "../../imaging/thumbnail.ts";
import { readFacts } from "../../runs/directory/run-files.ts";

const EDGE_PX = 256;
/** An answer with more pictures fills the context of a model. */
export const MOST_PREVIEWS = 8;

/** Larger files are no images of ours. */
const MOST_BYTES = 128 * 2 ** 20;

/**
 * Small pictures of image files, each after its path, as a tool's content. What cannot be read is left out, and so is a file
 * that does not lie below the root once it is open.
 */
export async function previewsOf(paths: readonly string[], root: string) {
  const decoding = new Decoding();
  const contents = [];
  for (const path of paths.slice(0, MOST_PREVIEWS)) {
    const facts = await readFacts(path, MOST_BYTES, root).catch(() => null);
    const small = facts === null ? null : await thumbnail(facts.head, EDGE_PX, decoding);
    if (small === null) continue;
    const data = Buffer.from(small).toString("base64");
    contents.push(
      { type: "text", text: path } as const,
      { type: "image", data, mimeType: "image/webp" } as const,
    );
  }
  return contents;
}
