import type { BatchModel } from "../../../contract/batch-api.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { usd } from "../../parts/words.ts";
import type { Draft } from "./draft.tsx";

/** The fields of the whole batch. */
export function DraftFields(props: {
  draft: Draft;
  models: readonly BatchModel[];
  model: BatchModel | null;
  /** The most images of one prompt. */
  mostImages: number;
  onChange: (fields: Partial<Draft>) => void;
}) {
  const { draft, models, model, mostImages, onChange } = props;
  const counts = Array.from({ length: mostImages }, (_, index) => index + 1);
  return (
    <div className="fields">
      <label className="field wide">
        <span>Name</span>
        <input
          value={draft.name}
          maxLength={FIXED_LIMITS.taskNameChars}
          placeholder="made up when empty"
          onChange={(event) => onChange({ name: event.target.value })}
        />
      </label>
      <label className="field wide">
        <span>Model</span>
        <select value={model?.id ?? ""} onChange={(event) => onChange({ model: event.target.value })}>
          {models.map(({ id, pricing }) => (
            <option key={id} value={id}>
              {pricing.play_money
                ? id
                : `${id} · ${usd(pricing.batch_image)} each${pricing.paid ? ", real money" : ""}`}
            </option>
          ))}
        </select>
      </label>
      <label className="field">
        <span>Images of each prompt</span>
        <select value={draft.count} onChange={(event) => onChange({ count: Number(event.target.value) })}>
          {counts.map((count) => (
            <option key={count}>{count}</option>
          ))}
        </select>
      </label>
    </div>
  );
}
