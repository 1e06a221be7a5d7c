import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { answerStream } from "../answer-stream.ts";
import { goneSignal, onEnded } from "../connections/exchange.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { publicUrlOf } from "../public-url.ts";
import { checkRequest } from "./check-request.ts";
import { eventsOf, finishImages, imagesView } from "./images-view.ts";
import { withRequest } from "./with-request.ts";

/** `POST /v1/images/generations` and `POST /v1/images/edits`. The order, behind the key: its limits, the body, its fields, provider, money. */
export function makeImages(deps: ApiDeps, { isEdit }: { isEdit: boolean }) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const ended = deps.requestLimits.begin(caller.key.id);
    onEnded(response, () => ended());
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    await withRequest(deps, request, response, isEdit, async (sent) => {
      try {
        const asked = await checkRequest(deps, caller.group, sent);
        const contents = deps.realtime.generateMany(caller, asked.content, asked.count, gone);
        const finished = contents.then((made) => finishImages(deps, asked, made));
        if (asked.isStream) await answerStream(deps, eventsOf(isEdit), response, finished);
        else response.json(await imagesView(deps, await finished, asked, publicUrlOf(deps, request)));
      } catch (error) {
        // The caller is gone: no response can reach it.
        if (!gone.aborted) throw error;
      }
    });
  };
}
