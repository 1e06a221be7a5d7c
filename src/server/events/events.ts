import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { onEnded } from "../connections/exchange.ts";
import type { ApiDeps } from "../deps.ts";
import { bearerToken, callerOf, keyOfCredential } from "../middleware/authenticate.ts";

/**
 * `GET /v1/events`: a stream of what changes for the key, as server-sent events. Nothing is sent again after a break, whatever
 * `Last-Event-ID` says: the reader reads its lists anew.
 */
export function events(deps: ApiDeps) {
  return (request: Request, response: Response): void => {
    response.setHeader("Content-Type", "text/event-stream");
    response.setHeader("Cache-Control", "no-store");
    // Without this header, nginx collects events and sends them late.
    response.setHeader("X-Accel-Buffering", "no");
    if (request.method === "HEAD") return void response.end();
    const credential = bearerToken(request);
    const close = deps.events.open({
      key: callerOf(response).key,
      write: (text) => {
        if (response.writableNeedDrain) response.destroy();
        else response.write(text);
      },
      end: () => response.end(),
      isAllowed: () => isAccepted(deps, credential),
    });
    onEnded(response, close);
  };
}

async function isAccepted(deps: ApiDeps, credential: string | null): Promise<boolean> {
  try {
    await keyOfCredential(deps, credential);
    return true;
  } catch (error) {
    if (error instanceof ImgbatchError) return false;
    throw error;
  }
}
