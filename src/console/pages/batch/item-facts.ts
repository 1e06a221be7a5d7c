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

/** Whether an image was made of an item, and deleted since. */
export function isDeleted({ status, images }: ItemObject): boolean {
  return status === "success" && images?.length === 0;
}

/** Whether there are images of an item that can be saved when its batch has ended. */
export function hasImages(item: ItemObject): boolean {
  return item.status === "success" && !isDeleted(item);
}
