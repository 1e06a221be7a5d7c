import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import { goneSignal } from "../../connections/exchange.ts";
import type { ApiDeps } from "../../deps.ts";
import { matchesEtag } from "../../downloads/send-download.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { queryChoice } from "../../query/query.ts";
import { findOutput } from "./find-output.ts";

const WIDTHS = ["256", "1024"] as const;

/**
 * `GET …/{id}/items/{custom_id}/thumbnail`: a small WebP of one image, which fits into a square of `width` pixels. It does
 * not wait for the end of the batch, and does not count as a download.
 */
export function thumbnail({ stores, thumbnails, thumbnailSlots }: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const width = queryChoice(request, "width", WIDTHS) ?? "256";
    const { output } = await findOutput(stores, request, response, { mustHaveEnded: false });
    const etag = `"${output.sha256}-${width}"`;
    response.setHeader("ETag", etag);
    keepInBrowser(response);
    response.setHeader("X-Content-Type-Options", "nosniff");
    if (matchesEtag(request.get("if-none-match"), etag)) return void response.status(304).end();
    const gone = goneSignal(response);
    const leaveSlot = thumbnailSlots.take(callerOf(response).key.id);
    try {
      const bytes = await thumbnails.get(output, width === "256" ? 256 : 1024, gone);
      if (bytes === null) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
      response.setHeader("Content-Type", "image/webp");
      response.setHeader("Content-Length", bytes.length);
      response.end(bytes);
    } catch (error) {
      // The reader went away: no fault of the service.
      if (!gone.aborted) throw error;
    } finally {
      leaveSlot();
    }
  };
}

/** Lets the browser of a caller keep what never changes. */
export function keepInBrowser(response: Response): void {
  // As long as a session of the console, in whose tab it is looked at again and again.
  response.setHeader("Cache-Control", "private, max-age=43200");
  // A browser must not show it to the next person who signs in.
  response.setHeader("Vary", "Authorization");
}
