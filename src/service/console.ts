import type { Config } from "../config/schema.ts";
import { signInUrl } from "../contract/console-api.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import type { Feed } from "../domain/feed.ts";
import { Thumbnails } from "../domain/images/thumbnails.ts";
import type { BlobStore } from "../domain/ports/blob-store.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { Decoding } from "../imaging/decoding.ts";
import { thumbnail } from "../imaging/thumbnail.ts";
import type { Clock } from "../kernel/clock.ts";
import { packageFile } from "../kernel/files/package-file.ts";
import { EventHub } from "../server/console/event-hub.ts";
import type { ApiDeps } from "../server/deps.ts";
import { DownloadSlots } from "../server/http/limits.ts";
import { type ConsoleSecrets, consoleSecrets } from "../server/http/secrets.ts";

/** The build of the web console, also when the service runs from its source. */
const CONSOLE_DIRECTORY = packageFile("dist/console");

/** Returns the parts of the API that were made for the web console. */
export function consoleParts(deps: {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  decoding: Decoding;
  feed: Feed;
}): Pick<ApiDeps, "consoleDirectory" | "secrets" | "events" | "thumbnails" | "thumbnailSlots"> {
  const { stores, blobs, clock, decoding } = deps;
  return {
    consoleDirectory: CONSOLE_DIRECTORY,
    secrets: consoleSecrets({ stores, clock }),
    events: new EventHub(deps),
    thumbnails: new Thumbnails({
      stores,
      blobs,
      shrink: (bytes, edgePx) => thumbnail(bytes, edgePx, decoding),
    }),
    thumbnailSlots: new DownloadSlots(FIXED_LIMITS.thumbnailsPerKey),
  };
}

/** Returns a function that makes a new link to sign in with; null where there is no console. */
export function signInLinks(
  { features, server }: Pick<Config, "features" | "server">,
  { codes }: ConsoleSecrets,
  url: string,
  keyId: string | null,
): (() => Promise<string>) | null {
  if (!features.console || keyId === null) return null;
  return async () => signInUrl(server.publicUrl ?? url, (await codes.issue({ keyId })).secret);
}
