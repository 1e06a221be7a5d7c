import { join } from "node:path";
import type { ImageMimeType, SizeTier } from "../contract/image-formats.ts";
import { expandedCustomIds } from "../contract/text-rules.ts";
import { safeFileName } from "../kernel/files/file-names.ts";
import type { Shape } from "../prompts/shape.ts";
import { damaged, readRunInput, requireUndamaged } from "./directory/input.ts";
import { createDiskNames, INPUT_FILE } from "./directory/names.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import { assignIds, contentHash, type PlannedItem } from "./plan/plan.ts";
import type { PromptItem, PromptReference } from "./plan/prompt-files.ts";
import type { PromptText } from "./plan/spool.ts";
import { itemsOf } from "./request.ts";

/** The settings that all requests of a run share. */
interface RealtimeSettings {
  model: string;
  aspectRatio: string | null;
  size: SizeTier | null;
  mimeType: ImageMimeType | null;
}

/** One request of a run. */
export interface PlannedImage extends Pick<RealtimeSettings, "aspectRatio" | "size"> {
  customId: string;
  prompt: PromptText;
  references: readonly PromptReference[];
  /** Its path relative to the run's directory, with `/`. The extension is missing: it follows from the bytes. */
  stem: string;
}

export interface RealtimePlan {
  settings: RealtimeSettings;
  /** Each with the ratio and size that it is asked for in. Null: the directory has them. */
  items: PlannedItem[] | null;
  images: PlannedImage[];
  /** Identifies the run: hash of everything that it requests. */
  inputSha256: string;
}

/** Gives every image an id and a name of its own, the same ones each time. */
export function planRealtimeRun(settings: RealtimeSettings, prompts: readonly PromptItem[]): RealtimePlan {
  const planned = assignIds(prompts);
  const items = planned.map((item) => ({ ...shapeOf(settings), ...item }));
  const images = imagesOf(
    items.flatMap((item) =>
      expandedCustomIds(item.customId, item.outputCount).map((id) => [id, item] as const),
    ),
  );
  const { model, aspectRatio, size, mimeType } = settings;
  const asked = { model, aspectRatio, size, ...(mimeType === null ? {} : { mimeType }) };
  const inputSha256 = contentHash({ kind: "realtime", ...asked }, planned);
  return { settings, items, images, inputSha256 };
}

/** Returns the plan of the run that a directory holds. Throws `DIRECTORY_CONFLICT` when its files do not tell. */
export async function readRealtimePlan(dir: string, runState: RunState): Promise<RealtimePlan> {
  const path = join(dir, INPUT_FILE);
  const { model, mime_type: mimeType = null, input_sha256: inputSha256 } = runState;
  const input = await readRunInput(dir);
  requireUndamaged(input);
  const ids = [...input.keys()];
  if (ids.length === 0) throw damaged(`${path} is missing`);
  if (model === undefined || inputSha256 === null) throw damaged(`${dir} does not tell the model of its run`);
  const items = await itemsOf(dir, input, ids);
  const images = imagesOf(items.map((item, at) => [ids[at] ?? "", item]));
  const settings = { model, aspectRatio: null, size: null, mimeType };
  return { settings, items: null, images, inputSha256 };
}

function imagesOf(items: readonly (readonly [id: string, PromptItem])[]): PlannedImage[] {
  const names = createDiskNames();
  return items.map(([customId, { prompt, references, aspectRatio = null, size = null }]) => {
    const stem = names.take(safeFileName(customId));
    return { customId, prompt, references, aspectRatio, size, stem };
  });
}

function shapeOf({ aspectRatio, size }: RealtimeSettings): Shape {
  return { ...(aspectRatio === null ? {} : { aspectRatio }), ...(size === null ? {} : { size }) };
}
