import { useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { zipLink } from "../../api/batches.ts";
import { saveLink } from "../../api/files.ts";
import { urlOf } from "../../api/request.ts";
import { Icon } from "../../parts/icons.tsx";
import { announce } from "../../parts/notes.tsx";
import { count } from "../../parts/status.tsx";
import { useLimits } from "../../parts/use-data.ts";
import { hasImages } from "./item-facts.ts";
import { saveImages, zipsOf } from "./save-images.ts";

/**
 * Downloads all images of a batch: as the service's ZIP, or, of more images than the service puts into one, as several that the
 * page makes. `items` is null before all of them are known.
 */
export function DownloadButton({ batch, items }: { batch: BatchObject; items: ItemObject[] | null }) {
  const { zipItems } = useLimits();
  const [done, setDone] = useState<number | null>(null);
  const isOne = batch.success_count <= zipItems;
  const images = items?.filter(hasImages) ?? [];
  const download = async () => {
    setDone(0);
    try {
      if (isOne) await followZip(batch.id);
      else await saveImages(batch.id, images, { zipItems, onDone: setDone });
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setDone(null);
    }
  };
  const zips = isOne ? "ZIP" : `${zipsOf(images.length || batch.success_count, zipItems)} ZIPs`;
  const isRunning = done !== null && !isOne;
  return (
    <button
      type="button"
      className="button primary"
      disabled={done !== null || (!isOne && items === null)}
      onClick={download}
    >
      <Icon name="download" />
      {isRunning ? `${count(done)} of ${count(images.length)}` : `Download ${zips}`}
    </button>
  );
}

async function followZip(batchId: string): Promise<void> {
  // The ticket counts, not the address that the service goes by: the page may be open under another one.
  const { search } = new URL(await zipLink(batchId));
  saveLink(urlOf(routes.ticketDownload(batchId) + search), `${batchId}.zip`);
}
