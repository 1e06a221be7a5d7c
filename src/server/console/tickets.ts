import type { Request, RequestHandler, Response } from "express";
import type { Ticket } from "../../contract/console-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { activeKey } from "../../domain/keys.ts";
import { findBatch } from "../batch-api/find-batch.ts";
import type { ApiDeps } from "../deps.ts";
import { callerAddress } from "../limits/failed-auth-limit.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { publicUrlOf } from "../public-url.ts";
import { queryText } from "../query/query.ts";

/** `POST …/{id}/ticket`: a link to the ZIP of a batch, for a browser, which sends no key when it follows a link. */
export function makeTicket(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id: batchId } = await findBatch(deps.stores, caller, request.params.id);
    const { secret, expiresAtMs } = await deps.secrets.tickets.issue({ keyId: caller.key.id, batchId });
    const url = `${publicUrlOf(deps, request)}${routes.ticketDownload(batchId)}?ticket=${secret}`;
    const view: Ticket = { object: "download.ticket", url, expires_at: Math.floor(expiresAtMs / 1000) };
    response.setHeader("Cache-Control", "no-store");
    response.json(view);
  };
}

/** Accepts the ticket of the batch that the path names, in the query. A GET uses it up. */
export function authenticateTicket({ stores, clock, secrets, failedAuth }: ApiDeps): RequestHandler {
  return async (request, response, next) => {
    const ticket = queryText(request, "ticket");
    if (ticket === undefined) throw new ImgbatchError("API_KEY_REQUIRED", "The link lacks its ticket.");
    const { tickets } = secrets;
    const held = request.method === "HEAD" ? (await tickets.find(ticket))?.value : await tickets.take(ticket);
    if (!held || held.batchId !== request.params.id) {
      failedAuth.note(callerAddress(request));
      throw new ImgbatchError("INVALID_API_KEY", "This link has been used, or is older than a minute.");
    }
    response.locals.key = await activeKey(stores.read, held.keyId, clock.nowMs());
    next();
  };
}
