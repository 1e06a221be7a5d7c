import { downloadZip } from "client-zip";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { saveBlob } from "../../api/files.ts";
import { send } from "../../api/request.ts";
import type { PlacedItem } from "./use-items.ts";

/** Whether an image was made of an item, and deleted since. */
export function isDeleted({ status, images, batch }: PlacedItem): boolean {
  return status === "success" && (images?.length === 0 || batch.status === "output_deleted");
}

/** Whether there are images of an item that can be saved: its batch has ended. */
export function canSave(item: PlacedItem): boolean {
  return item.status === "success" && !isDeleted(item) && isTerminal(item.batch.status);
}

/** Returns the name of a run: that of its batch without the ending ` (2 of 5)`. */
export const runName = (name: string) => name.replace(/ \(\d+ of \d+\)$/, "");

interface SaveOptions {
  /** The name of a ZIP, without its end. */
  name: string;
  /** The most items of one ZIP: the browser has a whole ZIP in its hands before it saves it. */
  zipItems: number;
  /** Called with the number of items that are fetched. */
  onDone?: (count: number) => void;
}

/**
 * Saves one image as it is, and several as a ZIP, or as several. Images of several models are in a folder each, and
 * `manifest.json` says which batch and prompt each is from. Throws `ApiError`.
 */
export async function saveImages(
  items: readonly PlacedItem[],
  { name, zipItems, onDone = () => {} }: SaveOptions,
): Promise<void> {
  const [first] = items;
  if (first && items.length === 1 && first.image_count <= 1) {
    return saveBlob(await fetchImage(first), `${fileStem(first.custom_id)}.${extensionOf(first)}`);
  }
  const hasFolders = new Set(items.map(({ batch }) => batch.model)).size > 1;
  const isOfSeveral = new Set(items.map(({ batch }) => batch.id)).size > 1;
  const count = Math.ceil(items.length / zipItems);
  for (let zip = 0; zip < count; zip++) {
    const from = zip * zipItems;
    const files = filesOf(items.slice(from, from + zipItems), hasFolders, (done) => onDone(from + done));
    const part = count === 1 ? "" : `-${zip + 1}-of-${count}`;
    saveBlob(await downloadZip(files).blob(), `${fileStem(isOfSeveral ? runName(name) : name)}${part}.zip`);
  }
}

async function* filesOf(items: readonly PlacedItem[], hasFolders: boolean, onDone: (count: number) => void) {
  const taken = new Set<string>();
  const files: object[] = [];
  for (const [at, item] of items.entries()) {
    const stem = fileStem(item.custom_id);
    const folder = hasFolders ? `${fileStem(item.batch.model)}/` : "";
    for (let index = 0; index < Math.max(1, item.image_count); index++) {
      const name = freeName(`${folder}${stem}${index === 0 ? "" : `_${index + 1}`}`, taken);
      const filename = `${name}.${extensionOf(item)}`;
      yield { name: filename, input: await fetchImage(item, index) };
      files.push(manifestEntry(item, index, filename));
    }
    onDone(at + 1);
  }
  const batches = [...new Set(items.map(({ batch }) => batch))].map(
    ({ id, model, task_name, created_at }) => {
      return { batch_id: id, model, task_name, created_at };
    },
  );
  yield { name: "manifest.json", input: `${JSON.stringify({ batches, files }, null, 2)}\n` };
}

/** An image as in the manifest of the service's own ZIP, with its batch and its prompt. */
function manifestEntry(item: PlacedItem, index: number, filename: string) {
  const { custom_id, batch, images } = item;
  const { mime_type, size, sha256 } = images?.[index] ?? {};
  const prompt = item.prompt ?? item.prompt_preview;
  return {
    custom_id,
    batch_id: batch.id,
    model: batch.model,
    prompt,
    filename,
    mime_type,
    image_index: index,
    size,
    sha256,
  };
}

/** The bytes of an item's image as they were made. */
export async function fetchImage({ batch, custom_id }: PlacedItem, index = 0): Promise<Blob> {
  return (await send(`${routes.content(batch.id, custom_id)}?image_index=${index}`)).blob();
}

/** An id or a name as the name of a file, which others may become as well. */
export function fileStem(name: string): string {
  return name.replace(/[\\/:*?"<>|\p{Cc}]/gu, "_").replace(/^\.+/, "_");
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
