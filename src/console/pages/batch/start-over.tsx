import { type ReactNode, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { MOST_SEED } from "../../../contract/image-formats.ts";
import { routes } from "../../../contract/routes.ts";
import { type ReferenceFile, readReference } from "../../api/files.ts";
import { send } from "../../api/request.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/route.ts";
import { useLimits } from "../../parts/use-data.ts";
import { type Draft, useDraft } from "../new-batch/draft.tsx";
import { fetchImage } from "./images.ts";

/** `again`: the same with another seed; `edit`: the same prompt, with the picture as reference. */
type Way = "again" | "edit";

/** Puts an item into the form for a new batch. `dialog` asks before other prompts of the form are replaced. */
export function useStartOver(batch: BatchObject): {
  start: (item: ItemObject, way: Way) => void;
  dialog: ReactNode;
} {
  const { draft, begin } = useDraft();
  const { referenceImageBytes } = useLimits();
  const [asked, setAsked] = useState<{ item: ItemObject; way: Way } | null>(null);
  const fill = async (item: ItemObject, way: Way) => {
    const files = await Promise.all(
      way === "edit"
        ? [fetchImage(batch.id, item).then((blob) => toReference(blob, item.custom_id, referenceImageBytes))]
        : referencesOf(batch, item, referenceImageBytes),
    );
    begin(draftOf(batch, item, way), files);
    go(hrefOf("new"));
  };
  const start = (item: ItemObject, way: Way) => {
    if (draft.text.trim() !== "") return setAsked({ item, way });
    fill(item, way).catch((error: Error) => announce(error.message));
  };
  const dialog = asked && (
    <ConfirmDialog
      title="Replace the prompts of the form?"
      action="Replace them"
      onClose={() => setAsked(null)}
      onConfirm={() => fill(asked.item, asked.way)}
    >
      <p>The form for a new batch has prompts that are not sent. This image takes their place.</p>
    </ConfirmDialog>
  );
  return { start, dialog };
}

function draftOf({ model }: BatchObject, item: ItemObject, way: Way): Partial<Draft> {
  const { image_size: size, ...others } = item.options ?? {};
  const seed = way === "again" ? { seed: Math.floor(Math.random() * MOST_SEED) } : {};
  const asked = Object.entries({ size, ...others, ...seed }).filter(([, value]) => value != null);
  const prompt = item.prompt ?? item.prompt_preview;
  const isPlain = /^[^\s#{"].*\S$/.test(prompt);
  return {
    model,
    format: isPlain ? "txt" : "jsonl",
    text: isPlain ? prompt : JSON.stringify({ prompt }),
    options: Object.fromEntries(asked.map(([field, value]) => [field, String(value)])),
  };
}

function referencesOf(batch: BatchObject, item: ItemObject, maxBytes: number): Promise<ReferenceFile>[] {
  return (item.references ?? []).map(async ({ id, storage_uri }, index) => {
    const name = id ?? `reference ${index + 1}`;
    if (storage_uri !== null) throw new Error(`${name} is kept elsewhere: it has no bytes here.`);
    const answer = await send(routes.reference(batch.id, item.custom_id, index));
    return toReference(await answer.blob(), name, maxBytes);
  });
}

async function toReference(blob: Blob, name: string, maxBytes: number): Promise<ReferenceFile> {
  const file = new File([blob], `${name}.${blob.type.split("/")[1]}`, { type: blob.type });
  const reference = await readReference(file, maxBytes);
  if (typeof reference === "string") throw new Error(reference);
  return reference;
}
