import {
  createContext,
  type FormEvent,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type { NativeBody } from "../../contract/native-api.ts";
import { routes } from "../../contract/routes.ts";
import { counted } from "../../kernel/text.ts";
import { generateImage } from "../api/batches.ts";
import { base64Of, copyImage, type ReferenceFile, readReference, saveBlob } from "../api/files.ts";
import { fetchJson, randomId } from "../api/request.ts";
import { DropArea, ReferenceList } from "../parts/drop-area.tsx";
import { announce, EmptyNote, ErrorNote, Icon } from "../parts/notes.tsx";
import { costOf, usd } from "../parts/status.tsx";
import { useData, useLimits } from "../parts/use-data.ts";

/** A request for one image. */
interface ShotRequest {
  model: string;
  prompt: string;
  references: readonly ReferenceFile[];
  /** Null: the ratio of the first reference, else 1:1. */
  ratio: string | null;
  size: string;
  /** US dollars. */
  cost: number;
  /** The images of the model cost real money. */
  isPaid: boolean;
  /** The images of the model are drawn, and cost no real money. */
  isPlay: boolean;
}

/** An image that was asked for in this tab. */
interface Shot {
  id: string;
  request: ShotRequest;
  /** Null while it is made, and after a failure. */
  image: ReferenceFile | null;
  error: Error | null;
}

interface Shots {
  /** The newest first. */
  shots: readonly Shot[];
  make: (request: ShotRequest) => void;
  /** Asks again for an image whose request failed, without paying twice for it. */
  repeat: (shot: Shot) => void;
}

const ShotsContext = createContext<Shots>({ shots: [], make: () => {}, repeat: () => {} });

/** The images that this tab has asked for, and the ways to ask. */
function useShots(): Shots {
  return useContext(ShotsContext);
}

/** Keeps the images of the tab while its pages change. They go with the session. */
export function ShotsProvider({ children }: { children: ReactNode }) {
  const [shots, setShots] = useState<readonly Shot[]>([]);
  const stop = useRef(new AbortController());
  const urls = useRef<string[]>([]);
  useEffect(() => {
    stop.current = new AbortController();
    return () => {
      stop.current.abort();
      for (const url of urls.current.splice(0)) URL.revokeObjectURL(url);
    };
  }, []);

  const run = useCallback(async ({ id, request }: Shot) => {
    const end = (outcome: Partial<Shot>) =>
      setShots((old) => old.map((shot) => (shot.id === id ? { ...shot, ...outcome } : shot)));
    end({ error: null });
    try {
      const { size, ratio, isPaid, cost, model } = request;
      const consent = { idempotencyKey: id, maxCost: isPaid ? cost : null };
      const body = {
        contents: [{ role: "user" as const, parts: await partsOf(request) }],
        generationConfig: {
          responseModalities: ["TEXT" as const, "IMAGE" as const],
          imageConfig: { imageSize: size as "1K", ...(ratio === null ? {} : { aspectRatio: ratio }) },
        },
      };
      const blob = await generateImage(model, body, consent, stop.current.signal);
      const url = URL.createObjectURL(blob);
      urls.current.push(url);
      const mimeType = blob.type as ReferenceFile["mimeType"];
      end({ image: { name: `${id}.${mimeType.split("/")[1]}`, blob, mimeType, pixels: 0, url } });
    } catch (error) {
      end({ error: error as Error });
    }
  }, []);

  const value = useMemo(
    () => ({
      shots,
      make: (request: ShotRequest) => {
        const shot = { id: `console-${randomId()}`, request, image: null, error: null };
        setShots((old) => [shot, ...old]);
        void run(shot);
      },
      repeat: run,
    }),
    [shots, run],
  );
  return <ShotsContext value={value}>{children}</ShotsContext>;
}

async function partsOf({
  prompt,
  references,
}: ShotRequest): Promise<NativeBody<"GenerateContent">["contents"][number]["parts"]> {
  const images = references.map(async ({ blob, mimeType }) => ({
    inlineData: { mimeType, data: await base64Of(blob) },
  }));
  return [{ text: prompt }, ...(await Promise.all(images))];
}

/** An image of this tab, with what to do with it. */
function ShotCard(props: { shot: Shot; onEdit: (request: ShotRequest, image: ReferenceFile) => void }) {
  const { shot, onEdit } = props;
  const { request, image, error } = shot;
  const { make, repeat } = useShots();
  const copy = (blob: Blob) =>
    copyImage(blob).then(
      () => announce("The image is copied."),
      (problem: Error) => announce(problem.message),
    );
  return (
    <article className="shot">
      {image && <img className="shot-image" src={image.url} alt={request.prompt} />}
      {!image && !error && (
        <div
          className="picture-waits"
          role="status"
          aria-label="The image is being made"
          style={{ aspectRatio: request.ratio?.replace(":", " / ") ?? "1" }}
        />
      )}
      <ErrorNote error={error} />
      <p className="shot-prompt" dir="auto">
        {request.prompt}
      </p>
      <p className="quiet small-text">
        {[
          request.model,
          request.ratio,
          request.size,
          image ? costOf(request.cost, request.isPlay, "exact") : null,
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      <div className="actions">
        {error && (
          <button type="button" className="button" onClick={() => repeat(shot)}>
            <Icon name="retry" /> Try again
          </button>
        )}
        {image && (
          <>
            <button type="button" className="button primary" onClick={() => saveBlob(image.blob, image.name)}>
              <Icon name="download" /> Download
            </button>
            <button type="button" className="button" onClick={() => make(request)}>
              <Icon name="retry" /> Again
            </button>
            <button type="button" className="button" onClick={() => onEdit(request, image)}>
              <Icon name="edit" /> Edit this
            </button>
            <button type="button" className="button" onClick={() => copy(image.blob)}>
              <Icon name="copy" /> Copy
            </button>
          </>
        )}
      </div>
    </article>
  );
}

const MOST_REFERENCES = 14;

/** Makes one image at once. */
export function OneImagePage() {
  const models = useData("realtime models", async (signal) => {
    const path = `${routes.nativeModels}?pageSize=1000`;
    return (await fetchJson<NativeBody<"NativeModelList">>(path, { signal })).models;
  });
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
