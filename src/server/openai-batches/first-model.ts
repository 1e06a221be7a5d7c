import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { ApiDeps } from "../deps.ts";
import { JsonLines } from "../jobs/json-lines.ts";
import { plainFormat } from "../request-body/body-shape.ts";

/** Nothing else of the line is kept. */
const FORMAT = plainFormat({ body: { model: "any" } }, "REALTIME_INVALID_ARGUMENT");

/**
 * Returns the model that the first readable line of an input names, as it writes it; null when it names none. Reads no
 * more than the most bytes that one line can have.
 */
export async function firstModelName(
  { blobs, limits }: Pick<ApiDeps, "blobs" | "limits">,
  blobKey: string,
): Promise<string | null> {
  const maxBytes = limits.realtimeBodyBytes;
  const bytes = await (blobs as BlobStore).open(blobKey, { start: 0, end: maxBytes - 1 });
  if (bytes === null) return null;
  const lines = new JsonLines({ format: FORMAT, images: null, maxBytes });
  try {
    for await (const line of lines.read(bytes)) {
      if ("problem" in line) continue;
      const { body }: { body?: { model?: unknown } | null } = line.value;
      return typeof body?.model === "string" && body.model !== "" ? body.model : null;
    }
    return null;
  } finally {
    bytes.destroy();
  }
}
