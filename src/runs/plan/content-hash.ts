import { createHash } from "node:crypto";
import { canonicalJson, type JsonValue } from "../../kernel/json/canonical-json.ts";
import type { PromptItem } from "../prompts/prompt-item.ts";
import { textOf } from "../prompts/spool.ts";

/**
 * SHA-256 of what is asked for: of the canonical JSON of `head` with the items, ids and all, as its `items`; without
 * ever holding more of it than one item.
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

/** What of an item decides the picture. */
function identityOf(item: PromptItem): JsonValue {
  const references = item.references.map(({ id = null, type = null, mimeType, sha256 }) => ({
    id,
    type,
    mimeType,
    sha256,
  }));
  const { customId: custom_id, outputCount: output_count } = item;
  return { custom_id, prompt: textOf(item.prompt), output_count, references };
}
