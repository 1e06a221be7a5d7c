import type { BatchModel } from "../../../contract/batch-api.ts";
import type { ImageSize } from "../../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { formatUsd } from "../../../kernel/money.ts";
import type { OptionField, Options } from "../../../prompts/options.ts";
import { imagePrice, takesOf } from "../../api/models.ts";
import { usd } from "../../parts/status.tsx";
import type { Draft } from "./draft.tsx";

/** What the fields of the whole batch need. */
interface FieldProps {
  draft: Draft;
  models: readonly BatchModel[];
  model: BatchModel | null;
  /** The most images of one prompt. */
  mostImages: number;
  onChange: (fields: Partial<Draft>) => void;
}

/** The fields of the whole batch. */
export function DraftFields({ draft, models, model, mostImages, onChange }: FieldProps) {
  const counts = Array.from({ length: mostImages }, (_, index) => index + 1);
  return (
    <div className="fields">
      <label className="field wide">
        <span>Name</span>
        <input
          value={draft.name}
          maxLength={FIXED_LIMITS.taskNameChars}
          placeholder="a name for the batch"
          onChange={(event) => onChange({ name: event.target.value })}
        />
      </label>
      <ModelField models={models} model={model} onModel={(id) => onChange({ model: id })} />
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

/** The choice of a model, with what its images cost. */
export function ModelField(props: Pick<FieldProps, "models" | "model"> & { onModel: (id: string) => void }) {
  const { models, model, onModel } = props;
  return (
    <label className="field wide">
      <span>Model</span>
      <select value={model?.id ?? ""} onChange={(event) => onModel(event.target.value)}>
        {models.map(({ id, pricing }) => (
          <option key={id} value={id}>
            {pricing.play_money
              ? id
              : `${id} · ${usd(pricing.batch_image)} each${pricing.paid ? ", real money" : ""}`}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The options that a model takes, such as those of lines that have none of their own. */
export function OptionFieldset(props: {
  label: string;
  options: Draft["options"];
  model: BatchModel | null;
  onChange: (options: Draft["options"]) => void;
}) {
  const { label, options, model, onChange } = props;
  if (model === null) return null;
  const takes = takesOf(model);
  const priced = (asked: Pick<Options, "size" | "quality">) =>
    model.pricing.play_money ? "" : ` · ${formatUsd(imagePrice(model, asked).cost)}`;
  const size = (options.size ?? "1K") as ImageSize;
  const usual = model.options.default_quality;
  const change = (field: OptionField) => (event: { target: { value: string } }) => {
    const { [field]: _, ...others } = options;
    const { value } = event.target;
    onChange(value === "" ? others : { ...others, [field]: value });
  };
  const choice = (
    field: OptionField,
    name: string,
    usually: string,
    priceOf: (value: string) => string = () => "",
  ) => {
    const values = takes[field];
    if (typeof values === "boolean" || values.length === 0) return null;
    const value = options[field] ?? "";
    return (
      <label className="field">
        <span>{name}</span>
        <select value={values.includes(value) ? value : ""} onChange={change(field)}>
          <option value="">{usually}</option>
          {values.map((each) => (
            <option key={each} value={each}>
              {each}
              {priceOf(each)}
            </option>
          ))}
        </select>
      </label>
    );
  };
  return (
    <fieldset className="fields options" aria-label={label}>
      {choice("aspect_ratio", "Ratio", "Default")}
      {choice("size", "Size", "Default", (value) => priced({ ...options, size: value as ImageSize }))}
      {choice("quality", "Quality", usual === null ? "Default" : `${usual} (default)`, (value) =>
        priced({ size, quality: value }),
      )}
      {choice("background", "Background", "Default")}
      {takes.seed === true && (
        <label className="field">
          <span>Seed</span>
          <input inputMode="numeric" value={options.seed ?? ""} placeholder="any" onChange={change("seed")} />
        </label>
      )}
      {takes.negative_prompt === true && (
        <label className="field wide">
          <span>Negative prompt</span>
          <input
            value={options.negative_prompt ?? ""}
            placeholder="what the images must not show"
            onChange={change("negative_prompt")}
          />
        </label>
      )}
    </fieldset>
  );
}
