import { type FormEvent, useRef, useState } from "react";
import { counted } from "../../../kernel/text.ts";
import { realtimeModels } from "../../api/realtime.ts";
import { type ReferenceFile, readReference } from "../../api/reference-file.ts";
import { useLimits } from "../../hooks/use-account.ts";
import { useData } from "../../hooks/use-data.ts";
import { announce } from "../../parts/announcer.tsx";
import { DropArea } from "../../parts/drop-area.tsx";
import { EmptyNote, ErrorNote } from "../../parts/notes.tsx";
import { ReferenceList } from "../../parts/reference-list.tsx";
import { costOf, usd } from "../../parts/words.ts";
import { ShotCard } from "./shot-card.tsx";
import { type ShotRequest, useShots } from "./shots.tsx";

const MOST_REFERENCES = 14;

/** Makes one image at once. */
export function OneImagePage() {
  const models = useData("realtime models", realtimeModels);
  const limits = useLimits();
  const { shots, make } = useShots();
  const last = shots[0]?.request;
  const [modelName, setModelName] = useState<string | null>(last?.model ?? null);
  const [prompt, setPrompt] = useState(last?.prompt ?? "");
  const [ratio, setRatio] = useState<string | null>(last?.ratio ?? null);
  const [size, setSize] = useState(last?.size ?? "1K");
  const [references, setReferences] = useState<readonly ReferenceFile[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  const list = models.value ?? [];
  const model = list.find(({ displayName }) => displayName === modelName) ?? list[0];
  const sizes = model?.imageSizes ?? [];
  const realSize = sizes.includes(size) ? size : (sizes[0] ?? "1K");
  const realRatio = ratio !== null && model?.aspectRatios.includes(ratio) ? ratio : null;
  const cost = model?.pricing.images[realSize] ?? 0;
  const isPaid = model?.pricing.paid === true;
  const isPlay = model?.pricing.play_money === true;

  const most = model?.maxInputImages ?? MOST_REFERENCES;
  const add = async (files: File[]) => {
    if (references.length + files.length > most)
      announce(`A prompt takes at most ${counted(most, "reference")}: the last ones are kept.`);
    for (const file of files) {
      const reference = await readReference(file, limits.referenceImageBytes);
      if (typeof reference === "string") announce(reference);
      else setReferences((old) => [...old, reference].slice(-most));
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!model) return;
    make({
      model: model.displayName,
      prompt,
      references,
      ratio: realRatio,
      size: realSize,
      cost,
      isPaid,
      isPlay,
    });
  };
  const edit = (request: ShotRequest, image: ReferenceFile) => {
    setReferences([image]);
    setModelName(request.model);
    setRatio(null);
    setPrompt("");
    field.current?.focus();
    scrollTo({ top: 0 });
  };
  return (
    <>
      <div className="page-head">
        <h1>One image</h1>
      </div>
      <ErrorNote error={models.error} />
      <div className="one-image">
        <form className="one-image-form" onSubmit={submit}>
          <label className="field">
            <span>Prompt</span>
            <textarea
              ref={field}
              required
              rows={5}
              value={prompt}
              placeholder={references.length > 0 ? "what to change" : "a red fox in the snow"}
              onChange={(event) => setPrompt(event.target.value)}
            />
          </label>
          <DropArea label="Add references" accept="image/png,image/jpeg,image/webp" onFiles={add}>
            <span className="quiet">or drop images to start from</span>
          </DropArea>
          <ReferenceList
            files={references}
            onRemove={(file) => setReferences(references.filter((each) => each !== file))}
          />
          <label className="field">
            <span>Model</span>
            <select value={model?.displayName ?? ""} onChange={(event) => setModelName(event.target.value)}>
              {list.map(({ displayName }) => (
                <option key={displayName}>{displayName}</option>
              ))}
            </select>
          </label>
          <div className="fields">
            <label className="field">
              <span>Ratio</span>
              <select value={realRatio ?? ""} onChange={(event) => setRatio(event.target.value || null)}>
                <option value="">{references.length > 0 ? "as the reference" : "1:1, the default"}</option>
                {model?.aspectRatios.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
            <label className="field">
              <span>Size</span>
              <select value={realSize} onChange={(event) => setSize(event.target.value)}>
                {sizes.map((each) => (
                  <option key={each} value={each}>
                    {isPlay ? each : `${each} · ${usd(model?.pricing.images[each] ?? 0)}`}
                  </option>
                ))}
              </select>
            </label>
          </div>
          <button type="submit" className="button primary" disabled={!model || prompt.trim() === ""}>
            {isPaid ? `Pay up to ${usd(cost, "limit")}` : "Make the image"}
          </button>
          {model && !isPaid && <p className="quiet">{costOf(cost, isPlay, "exact")}</p>}
        </form>
        <section className="shots" aria-label="Images" aria-live="polite">
          {shots.map((shot) => (
            <ShotCard key={shot.id} shot={shot} onEdit={edit} />
          ))}
          {shots.length === 0 && (
            <EmptyNote icon="image" title="The image will appear here">
              <p className="quiet">
                Images of this page are kept until the tab is closed. Download those that you want.
              </p>
            </EmptyNote>
          )}
        </section>
      </div>
    </>
  );
}
