import type { SizeTier } from "../../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import { expandedCustomIds } from "../../contract/text-rules.ts";
import { safeFileName } from "../../kernel/files/file-names.ts";
import type { Shape } from "../../prompts/shape.ts";
import { createDiskNames } from "../files/file-names.ts";
import { contentHash } from "../plan/content-hash.ts";
import { assignIds, type PlannedItem } from "../plan/plan.ts";
import type { PromptItem, PromptReference } from "../prompts/prompt-item.ts";
import type { PromptText } from "../prompts/spool.ts";

/** The settings that all requests of a run share. */
export interface RealtimeSettings {
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
  /** Each with the ratio and size that it is asked for in. */
  items: PlannedItem[];
  images: PlannedImage[];
  /** Identifies the run: hash of everything that it requests. */
  inputSha256: string;
}

/** Gives every image an id and a name of its own, the same ones each time. */
export function planRealtimeRun(settings: RealtimeSettings, prompts: readonly PromptItem[]): RealtimePlan {
  const planned = assignIds(prompts);
  const items = planned.map((item) => ({ ...shapeOf(settings), ...item }));
  const names = createDiskNames();
  const images = items.flatMap(({ customId, outputCount, prompt, references, ...item }) =>
    expandedCustomIds(customId, outputCount).map((id) => ({
      customId: id,
      prompt,
      references,
      aspectRatio: item.aspectRatio ?? null,
      size: item.size ?? null,
      stem: names.take(safeFileName(id)),
    })),
  );
  const { model, aspectRatio, size, mimeType } = settings;
  const asked = { model, aspectRatio, size, ...(mimeType === null ? {} : { mimeType }) };
  const inputSha256 = contentHash({ kind: "realtime", ...asked }, planned);
  return { settings, items, images, inputSha256 };
}

function shapeOf({ aspectRatio, size }: RealtimeSettings): Shape {
  return { ...(aspectRatio === null ? {} : { aspectRatio }), ...(size === null ? {} : { size }) };
}
