import type { Answer } from "./send.ts";

/**
 * Returns the text of an answer, after decompression. Null when it is longer than `maxBytes`; the rest is not read then.
 */
export async function boundedText(
  response: Pick<Answer, "body">,
  maxBytes: number,
  moved?: (bytes: number) => void,
): Promise<string | null> {
  const data = await boundedBytes(response, maxBytes, moved);
  return data === null ? null : new TextDecoder().decode(data);
}

/** Returns the same as bytes. Calls `moved` with the length of each piece. */
export async function boundedBytes(
  response: Pick<Answer, "body">,
  maxBytes: number,
  moved: (bytes: number) => void = () => {},
): Promise<Buffer | null> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body) {
    moved(chunk.length);
    bytes += chunk.length;
    // Leaving the loop cancels the body.
    if (bytes > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
