/**
 * The text of an answer, after decompression; null when it is longer than `maxBytes`: then nothing more of it is read.
 * Rule: HTTP-22.
 */
export async function boundedText(response: Response, maxBytes: number): Promise<string | null> {
  const data = await boundedBytes(response, maxBytes);
  return data === null ? null : new TextDecoder().decode(data);
}

/** The same as bytes. `alive` is told of each piece. */
export async function boundedBytes(
  response: Response,
  maxBytes: number,
  alive: () => void = () => {},
): Promise<Buffer | null> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    alive();
    bytes += chunk.length;
    // Leaving the loop cancels the body.
    if (bytes > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
