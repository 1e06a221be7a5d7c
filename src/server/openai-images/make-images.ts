import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { contentFingerprint } from "../../domain/realtime/checked-content.ts";
import type { GeneratedContent } from "../../domain/realtime/generate.ts";
import { answerOnce } from "../answer-once.ts";
import { answerStream } from "../answer-stream.ts";
import { goneSignal } from "../connections/exchange.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import { publicUrlOf } from "../public-url.ts";
import { type AskedImages, checkRequest } from "./check-request.ts";
import { eventsOf, FRAMING, finishedImages, finishImage, imagesView } from "./images-view.ts";
import { withRequest } from "./with-request.ts";

/**
 * `POST /v1/images/generations` and `POST /v1/images/edits`. The order, behind the key: the body, its fields, provider,
 * the limits of the key, money.
 */
export function makeImages(deps: ApiDeps, { isEdit }: { isEdit: boolean }) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const idempotencyKey = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    const publicUrl = publicUrlOf(deps, request);
    await withRequest(deps, request, response, isEdit, async (sent) => {
      try {
        const asked = await checkRequest(deps, caller.group, sent);
        const work = answerOnce<readonly GeneratedContent[]>(deps, response, gone, {
          apiKeyId: caller.key.id,
          idempotencyKey,
          fingerprint: () => fingerprintOf(asked, isEdit),
          make: (leaving, record) =>
            deps.realtime.generateMany(caller, asked.content, asked.count, leaving, record, (made) =>
              finishImage(deps.converter, asked, made),
            ),
          render: async (contents) => {
            const finished = finishedImages(deps, asked, contents);
            if (asked.isStream) return eventsOf(finished, isEdit);
            return Buffer.from(JSON.stringify(await imagesView(deps, finished, asked, publicUrl)));
          },
        });
        if (asked.isStream) await answerStream(deps, FRAMING, response, work);
        else response.type("json").send(await work);
      } catch (error) {
        // The caller has disconnected: no response can reach it.
        if (!gone.aborted) throw error;
      }
    });
  };
}

function fingerprintOf({ content, ...rest }: AskedImages, isEdit: boolean): string {
  return contentFingerprint(`images ${JSON.stringify({ isEdit, ...rest })}`, content);
}
