import { downloadZip } from "client-zip";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { saveBlob } from "../../api/files.ts";
import { send } from "../../api/request.ts";

/** Whether an image was made of an item, and deleted since. */
export function isDeleted({ status, images }: ItemObject): boolean {
  return status === "success" && images?.length === 0;
}

/** Whether there are images of an item that can be saved when its batch has ended. */
export function hasImages(item: ItemObject): boolean {
  return item.status === "success" && !isDeleted(item);
}

interface SaveOptions {
  /** The most items of one ZIP: the browser has a whole ZIP in its hands before it saves it. */
  zipItems: number;
  /** Called with the number of items that are fetched. */
  onDone?: (count: number) => void;
}

/** Saves one image as it is, and several as a ZIP, or as several. Throws `ApiError`. */
export async function saveImages(
  batchId: string,
  items: readonly ItemObject[],
  { zipItems, onDone = () => {} }: SaveOptions,
): Promise<void> {
  const [first] = items;
  if (first && items.length === 1 && first.image_count <= 1) {
    return saveBlob(await fetchImage(batchId, first), `${stemOf(first)}.${extensionOf(first)}`);
  }
  const count = Math.ceil(items.length / zipItems);
  for (let zip = 0; zip < count; zip++) {
    const from = zip * zipItems;
    const files = filesOf(batchId, items.slice(from, from + zipItems), (done) => onDone(from + done));
    const part = count === 1 ? "selection" : `${zip + 1}-of-${count}`;
    saveBlob(await downloadZip(files).blob(), `${batchId}-${part}.zip`);
  }
}

async function* filesOf(batchId: string, items: readonly ItemObject[], onDone: (count: number) => void) {
  const taken = new Set<string>();
  for (const [at, item] of items.entries()) {
    for (let index = 0; index < Math.max(1, item.image_count); index++) {
      const name = freeName(index === 0 ? stemOf(item) : `${stemOf(item)}_${index + 1}`, taken);
      yield { name: `${name}.${extensionOf(item)}`, input: await fetchImage(batchId, item, index) };
    }
    onDone(at + 1);
  }
}

/** The bytes of an item's image as they were made. */
export async function fetchImage(batchId: string, item: ItemObject, index = 0): Promise<Blob> {
  return (await send(`${routes.content(batchId, item.custom_id)}?image_index=${index}`)).blob();
}

/** An item's id as the name of a file, which other ids may become as well. */
function stemOf({ custom_id }: ItemObject): string {
  return custom_id.replace(/[\\/:*?"<>|\p{Cc}]/gu, "_").replace(/^\.+/, "_");
}

function extensionOf({ file_extension }: ItemObject): string {
  return file_extension ?? "png";
}

/** Disks that ignore case take `Fox` and `fox` for one. */
function freeName(stem: string, taken: Set<string>): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? stem : `${stem} (${number})`;
    if (taken.has(name.toLowerCase())) continue;
    taken.add(name.toLowerCase());
    return name;
  }
}
