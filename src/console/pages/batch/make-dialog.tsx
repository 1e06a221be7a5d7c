import { useEffect, useMemo, useState } from "react";
import { MOST_SEED } from "../../../contract/image-formats.ts";
import { routes } from "../../../contract/routes.ts";
import { costText, formatUsd } from "../../../kernel/money.ts";
import { batchModels } from "../../api/batches.ts";
import { type ReferenceFile, readReference } from "../../api/files.ts";
import { randomId, send } from "../../api/request.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce, ErrorNote } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/route.ts";
import { useData, useLimits } from "../../parts/use-data.ts";
import { type CheckedDraft, checkDraft } from "../new-batch/check-draft.ts";
import { ModelField, OptionFieldset } from "../new-batch/draft-fields.tsx";
import { sendDraft } from "../new-batch/send-bar.tsx";
import { fetchImage } from "./images.ts";
import type { PlacedItem } from "./use-items.ts";

/** `again`: the same with another seed or model; `edit`: another prompt, with the picture as reference. */
export type MakeWay = "again" | "edit";

/** Makes another image from one that is there: shows the price before it sends it, as a batch of its own. */
export function MakeDialog({ item, way, onClose }: { item: PlacedItem; way: MakeWay; onClose: () => void }) {
  const limits = useLimits();
  const models = useData("models", batchModels);
  const [prompt, setPrompt] = useState(item.prompt ?? item.prompt_preview);
  const [modelId, setModelId] = useState(item.batch.model);
  const [options, setOptions] = useState(() => optionsOf(item, way));
  const references = useData(`references ${item.batch.id} ${item.key} ${way}`, () =>
    referencesOf(item, way, limits.referenceImageBytes),
  );
  const [checked, setChecked] = useState<CheckedDraft | null>(null);
  const key = useMemo(() => `console-${randomId()}`, []);
  const model = models.value?.find(({ id }) => id === modelId) ?? models.value?.[0] ?? null;
  const files = references.value;
  const known = models.value;
  useEffect(() => {
    let isWanted = true;
    setChecked(null);
    if (files === null || known === null || model === null) return;
    const text = JSON.stringify({ custom_id: item.custom_id, prompt });
    const draft = { text, format: "jsonl" as const, fileName: "", count: 1, sharesReferences: true };
    void checkDraft({ ...draft, model: model.id, options, lists: {} }, files, { limits, models: known }).then(
      (found) => isWanted && setChecked(found),
    );
    return () => {
      isWanted = false;
    };
  }, [item.custom_id, prompt, model, options, files, known, limits]);
  const price = checked?.problemCount === 0 ? checked.price : null;
  return (
    <ConfirmDialog
      title={way === "again" ? "Make it again" : "Edit and make"}
      className="medium"
      action={price?.isPaid ? `Pay up to ${formatUsd(price.hold, "limit")}` : "Make the image"}
      isReady={price !== null}
      onClose={onClose}
      onConfirm={async () => {
        if (checked === null || known === null) return;
        const name = `${item.custom_id}, ${way === "again" ? "again" : "edited"}`;
        const [batch] = await sendDraft({ key, name }, checked.batches, known);
        announce("The batch is sent.");
        if (batch) go(hrefOf("batches", batch.id));
      }}
    >
      <label className="field">
        <span>Prompt</span>
        <textarea rows={4} value={prompt} onChange={(event) => setPrompt(event.target.value)} />
      </label>
      <ModelField models={known ?? []} model={model} onModel={setModelId} />
      <OptionFieldset options={options} model={model} onChange={setOptions} label="Options of the image" />
      <ErrorNote error={models.error ?? references.error} />
      {files !== null && files.length > 0 && (
        <div className="reference-row">
          {files.map(({ url, name }) => (
            <img key={url} src={url} alt={`reference ${name}`} />
          ))}
          <span className="quiet">
            {way === "edit" ? "This picture is the reference." : "The same references."}
          </span>
        </div>
      )}
      {checked?.problems.map(({ field, message }) => (
        <p key={`${field} ${message}`} className="note bad" dir="auto">
          <span>
            {field !== null && <b>{field}: </b>}
            {message}
          </span>
        </p>
      ))}
      <p role="status">
        {price && (
          <>
            <b>{costText({ micros: price.cost, isPlay: price.isPlay }, "exact")}</b>
            {!price.isPlay && (
              <span className="quiet"> · {formatUsd(price.hold, "limit")} is held until the end</span>
            )}
          </>
        )}
      </p>
    </ConfirmDialog>
  );
}

function optionsOf(item: PlacedItem, way: MakeWay): Record<string, string> {
  const { image_size: size, seed: _, ...others } = item.options ?? {};
  const seed = way === "again" ? Math.floor(Math.random() * MOST_SEED) : null;
  const asked = Object.entries({ size, ...others, seed }).filter(([, value]) => value != null);
  return Object.fromEntries(asked.map(([field, value]) => [field, String(value)]));
}

/** The images that the new one starts from. */
function referencesOf(item: PlacedItem, way: MakeWay, maxBytes: number): Promise<ReferenceFile[]> {
  if (way === "edit")
    return Promise.all([fetchImage(item).then((blob) => toReference(blob, item.custom_id, maxBytes))]);
  const read = (item.references ?? []).map(async ({ id }, index) => {
    const name = id ?? `reference ${index + 1}`;
    const answer = await send(routes.reference(item.batch.id, item.custom_id, index));
    return toReference(await answer.blob(), name, maxBytes);
  });
  return Promise.all(read);
}

async function toReference(blob: Blob, name: string, maxBytes: number): Promise<ReferenceFile> {
  const file = new File([blob], `${name}.${blob.type.split("/")[1]}`, { type: blob.type });
  const reference = await readReference(file, maxBytes);
  if (typeof reference === "string") throw new Error(reference);
  return reference;
}
