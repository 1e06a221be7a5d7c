import { ImgbatchError } from "../contract/errors.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { type Answer, boundedBytes } from "../http/transport.ts";

/** No image is larger. A longer answer would fill the memory. */
const MAX_IMAGE_BYTES = 256 * 1024 * 1024;

export interface Content {
  data: Buffer;
  /** SHA-256 in hexadecimal digits when the ETag is one, else null. */
  sha256: string | null;
  /** Null when the service did not say. */
  contentType: string | null;
}

/** Gets the bytes of one image of an item. `index` counts from 0. Throws the service's errors and `NETWORK`. */
export async function getContent(
  http: Http,
  batchId: string,
  customId: string,
  index: number,
  signal?: AbortSignal,
): Promise<Content> {
  const path = `${routes.content(batchId, customId)}?image_index=${index}`;
  return http.stream(
    async () => ({
      method: "GET",
      path,
      headers: { "accept-encoding": "identity" },
      signal,
      elsewhere: true,
    }),
    async (response) => {
      const data = await boundedBytes(response.body, MAX_IMAGE_BYTES);
      if (data === null) throw new ImgbatchError("BAD_RESPONSE", `An image of ${customId} has no end.`);
      requireWhole(response, data.length);
      const [, sha256 = null] = /^"([0-9a-f]{64})"$/.exec(response.headers.get("etag") ?? "") ?? [];
      return { data, sha256, contentType: response.headers.get("content-type") };
    },
  );
}

function requireWhole(response: Answer, bytes: number): void {
  const length = response.headers.get("content-length");
  if (length === null || response.headers.has("content-encoding") || Number(length) === bytes) return;
  throw new ImgbatchError("NETWORK", `An image ended after ${bytes} of ${length} bytes.`);
}
