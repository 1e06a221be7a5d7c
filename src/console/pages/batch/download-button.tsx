import { useState } from "react";
import type { BatchObject } from "../../../contract/batch-api/batches.ts";
import { DEFAULT_LIMITS } from "../../../contract/limits.ts";
import { routes } from "../../../contract/routes.ts";
import { zipLink } from "../../api/batches.ts";
import { urlOf } from "../../api/request.ts";
import { saveLink } from "../../api/save-file.ts";
import { announce } from "../../parts/announcer.tsx";
import { Icon } from "../../parts/icons.tsx";

/** Downloads all images of a batch as the service's ZIP. */
export function DownloadButton({ batch }: { batch: BatchObject }) {
  const [isBusy, setBusy] = useState(false);
  if (batch.success_count > DEFAULT_LIMITS.zipItems) return null;
  const download = async () => {
    setBusy(true);
    try {
      // The ticket counts, not the address that the service goes by: the page may be open under another one.
      const { search } = new URL(await zipLink(batch.id));
      saveLink(urlOf(routes.ticketDownload(batch.id) + search), `${batch.id}.zip`);
    } catch (error) {
      announce((error as Error).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" className="button primary" disabled={isBusy} onClick={download}>
      <Icon name="download" /> Download ZIP
    </button>
  );
}
