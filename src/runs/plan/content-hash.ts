import { createHash } from "node:crypto";
import { canonicalJson, type JsonValue } from "../../kernel/json/canonical-json.ts";
import type { PromptItem } from "../prompts/prompt-item.ts";
import { textOf } from "../prompts/spool.ts";

/**
 * Returns the SHA-256 of a request: of the canonical JSON (RFC 8785) of `head` with the items, including their ids, as its
 * `items`. Only one item is in memory at a time.
 */
export function contentHash(
  head: { readonly [key: string]: JsonValue },
  items: readonly PromptItem[],
): string {
  const hash = createHash("sha256");
  const names = [...Object.keys(head), "items"].sort();
  for (const [at, name] of names.entries()) {
    hash.update(`${at === 0 ? "{" : ","}${JSON.stringify(name)}:`);
    if (name !== "items") hash.update(canonicalJson(head[name] ?? null));
    else addItems(items, (text) => hash.update(text));
  }
  return hash.update("}").digest("hex");
}

function addItems(items: readonly PromptItem[], add: (text: string) => void): void {
  add("[");
  for (const [at, item] of items.entries()) add(`${at === 0 ? "" : ","}${canonicalJson(identityOf(item))}`);
  add("]");
}

/** Returns the fields of an item that decide the picture, and its id. */
function identityOf(item: PromptItem): JsonValue {
  const references = item.references.map(({ id = null, type = null, mimeType, sha256 }) => ({
    id,
    type,
    mimeType,
    sha256,
  }));
  const { customId: custom_id, outputCount: output_count, aspectRatio, size } = item;
  return {
    custom_id,
    prompt: textOf(item.prompt),
    output_count,
    references,
    ...(aspectRatio === undefined ? {} : { aspect_ratio: aspectRatio }),
    ...(size === undefined ? {} : { size }),
  };
}
