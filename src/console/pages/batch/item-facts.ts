import type { ItemObject } from "../../../contract/batch-api.ts";
import { formatSize } from "../../../kernel/text.ts";

/** `1024 × 1024 · 1.4 MB`: what is known of an item's first image, or its id before there is one. */
export function factsOf({ images, custom_id, status }: ItemObject): string {
  const [image] = images ?? [];
  if (status === "pending") return custom_id;
  return image ? `${image.width} × ${image.height} · ${formatSize(image.size)}` : "";
}

/** Whether an image was made of an item, and deleted since. */
export function isDeleted({ status, images }: ItemObject): boolean {
  return status === "success" && images?.length === 0;
}

/** Whether there are images of an item that can be saved when its batch has ended. */
export function hasImages(item: ItemObject): boolean {
  return item.status === "success" && !isDeleted(item);
}
