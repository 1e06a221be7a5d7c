/**
 * Base64 text in what a caller sent, found to be strict and decoded while it was read. It stands in the place of long
 * texts, so that the main thread never handles them.
 */
export class DecodedBase64 {
  readonly bytes: Buffer;
  /** Lower-case hexadecimal. */
  readonly sha256: string;

  constructor(bytes: Buffer, sha256: string) {
    this.bytes = bytes;
    this.sha256 = sha256;
  }
}
