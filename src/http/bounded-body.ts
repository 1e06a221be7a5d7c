/**
 * The text of an answer, after decompression; null when it is longer than `maxBytes`: then nothing more of it is read.
 */
export async function boundedText(
  response: Response,
  maxBytes: number,
  moved?: (bytes: number) => void,
): Promise<string | null> {
  const data = await boundedBytes(response, maxBytes, moved);
  return data === null ? null : new TextDecoder().decode(data);
}

/** The same as bytes. `moved` is called with the length of each piece. */
export async function boundedBytes(
  response: Response,
  maxBytes: number,
  moved: (bytes: number) => void = () => {},
): Promise<Buffer | null> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    moved(chunk.length);
    bytes += chunk.length;
    // Leaving the loop cancels the body.
    if (bytes > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
