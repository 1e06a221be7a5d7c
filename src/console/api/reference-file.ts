import { HEADER_BYTES, type ImageMimeType, readImageHeader } from "../../contract/image-formats.ts";
import { OTHER_TYPE, tooLarge } from "../../prompts/problems.ts";

/** An image that a person gave to start from. */
export interface ReferenceFile {
  name: string;
  blob: Blob;
  mimeType: ImageMimeType;
  /** 0 when nobody has looked. */
  pixels: number;
  /** An object URL, to show it. */
  url: string;
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
  };
}
