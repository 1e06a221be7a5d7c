import { IMAGE_EXTENSIONS } from "../../../contract/image-formats.ts";
import type { EntryOf } from "../../../contract/provider-entries.ts";
import type { ImageRequest } from "../../../domain/ports/image-provider.ts";
import { joinTurns } from "../../../kernel/text.ts";
import { dataUrlOf, formBody, jsonBody, type RequestBody } from "../request-body.ts";

type Entry = EntryOf<"openai">;
/** The keys of an entry that decide the fields of a request. */
export type FieldRules = Pick<Entry, "sizeAs" | "responseFormat" | "extra">;
type Fields = Record<string, unknown>;

/** OpenAI's own models take `output_format`, and refuse `response_format`: they always return Base64. */
function takesOutputFormat(upstreamModel: string): boolean {
  return /^(?:gpt-image|chatgpt-image)-/.test(upstreamModel);
}

/** The request for an image: a generation, or with references an edit. */
export function imagesRequest(entry: Entry, request: ImageRequest): { path: string; body: RequestBody } {
  const { path, editPath, edits } = entry;
  const { references } = request;
  const fields = imageFields(entry, request);
  if (references.length === 0) return { path, body: jsonBody(fields) };
  if (edits === "input_references") {
    const input_references = references.map((image) => ({
      type: "image_url",
      image_url: { url: dataUrlOf(image) },
    }));
    return { path, body: jsonBody({ ...fields, input_references }) };
  }
  if (edits === "json") {
    const images = references.map((image) => ({ type: "image_url", url: dataUrlOf(image) }));
    return {
      path: editPath,
      body: jsonBody({ ...fields, ...(images[1] ? { images } : { image: images[0] }) }),
    };
  }
  // One file goes by the plain name, several as a list: all servers that were looked at read both.
  const field = references.length === 1 ? "image" : "image[]";
  const files = references.map((image, i) => ({
    field,
    fileName: `reference-${i + 1}.${IMAGE_EXTENSIONS[image.mimeType]}`,
    content: image,
  }));
  return { path: editPath, body: formBody(asTexts(fields), files) };
}

/** The fields of a request for an image, without its references. */
export function imageFields(entry: FieldRules, request: ImageRequest): Fields {
  const { model, prompt, earlier = "" } = request;
  const isOpenai = takesOutputFormat(model);
  const { responseFormat } = entry;
  return {
    ...sizeFields(entry, request),
    ...(isOpenai ? { output_format: IMAGE_EXTENSIONS[request.mimeType].replace("jpg", "jpeg") } : {}),
    ...(isOpenai || responseFormat === "omit" ? {} : { response_format: responseFormat }),
    ...entry.extra,
    model,
    prompt: joinTurns(earlier, prompt),
  };
}

/** Pixels are sent for an edit that keeps the ratio of its reference, too: without them many servers make a square. */
function sizeFields({ sizeAs }: FieldRules, { size, ratio, keepsRatio }: ImageRequest): Fields {
  if (sizeAs === "aspect_ratio") return keepsRatio ? {} : { aspect_ratio: ratio };
  const { widthPx: width, heightPx: height } = size;
  return sizeAs === "size" ? { size: `${width}x${height}` } : { width, height };
}

/** A form has texts only. A null is left out. */
function asTexts(fields: Fields): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
