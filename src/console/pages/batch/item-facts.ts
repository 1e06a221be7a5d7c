import type { ItemObject } from "../../../contract/batch-api/items.ts";
import { formatSize } from "../../../kernel/text.ts";
import { usd } from "../../parts/words.ts";

/** `1024 × 1024 · 1.4 MB · $0.04`: what is known of an item's first image, or its id before there is one. */
export function factsOf({ images, cost, custom_id, status }: ItemObject): string {
  const [image] = images ?? [];
  if (status === "pending") return custom_id;
  return [
    image && `${image.width} × ${image.height}`,
    image && formatSize(image.size),
    cost === null ? null : usd(cost),
  ]
    .filter(Boolean)
    .join(" · ");
}

/** The name of the file of an item's image. */
export function fileNameOf({ custom_id, file_extension }: ItemObject): string {
  return `${custom_id.replace(/[\\/:*?"<>|\p{Cc}]/gu, "_").replace(/^\.+/, "_")}.${file_extension ?? "png"}`;
}
