import { downloadZip } from "client-zip";
import type { ItemObject } from "../../../contract/batch-api/items.ts";
import { routes } from "../../../contract/routes.ts";
import { send } from "../../api/request.ts";
import { saveBlob } from "../../api/save-file.ts";
import { fileNameOf } from "./item-facts.ts";

/** Saves one image as it is, or several as a ZIP. Calls `onDone` with how many are fetched. Throws `ApiError`. */
export async function saveImages(
  batchId: string,
  items: readonly ItemObject[],
  onDone: (count: number) => void,
): Promise<void> {
  const [first] = items;
  if (first && items.length === 1) return saveBlob(await fetchImage(batchId, first), fileNameOf(first));
  const files = async function* () {
    for (const [index, item] of items.entries()) {
      yield { name: fileNameOf(item), input: await fetchImage(batchId, item) };
      onDone(index + 1);
    }
  };
  saveBlob(await downloadZip(files()).blob(), `${batchId}-selection.zip`);
}

/** The bytes of an item's image as they were made. */
export async function fetchImage(batchId: string, item: ItemObject): Promise<Blob> {
  return (await send(routes.content(batchId, item.custom_id))).blob();
}
