import { promisify } from "node:util";
import { sniffImageType } from "../../contract/image-formats.ts";
import type { LargeImage, ProviderError } from "../../domain/ports/image-provider.ts";
import { followRedirects, MOST_REDIRECTS } from "../../http/redirects.ts";
import type { ImagesJson } from "./answer-images.ts";
import { ambiguous } from "./classify.ts";
import { isPrivateAddress, isPrivateHost } from "./connections.ts";
import type { UpstreamHttp } from "./http.ts";

/**
 * Returns the image behind an address of an answer: a data URL, or an HTTP one, also relative to the upstream. `headers`
 * carry the credential, and go to the upstream's own origin only. Every other host must have a public address, at each of
 * at most three redirects. Rejects with `ProviderError`, always `ambiguous`: the image was made.
 */
export async function fetchImage(
  http: UpstreamHttp,
  address: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
  { decode, images }: Pick<ImagesJson, "decode" | "images">,
): Promise<Buffer | LargeImage> {
  if (address.startsWith("data:")) return decode(address);
  const failed = (why: string) => new AddressError(ambiguous(http.name, `the address of its image: ${why}`));
  const isOwn = (url: URL) => url.origin === new URL(http.baseUrl).origin;
  const requirePublic = async (url: URL) => {
    if (!isOwn(url) && (await leadsInside(http, url))) throw failed("not of the public internet");
  };
  const hop = (url: URL) => {
    const { own, foreign } = http.connections;
    return isOwn(url)
      ? http.send(own, url, { headers }, signal)
      : http.send(foreign, url, { headers: {} }, signal);
  };
  try {
    const start = URL.canParse(address, `${http.baseUrl}/`) ? new URL(address, `${http.baseUrl}/`) : null;
    if (start === null || !/^https?:$/.test(start.protocol)) throw failed("not an HTTP address");
    await requirePublic(start);
    const answer = await followRedirects(start, hop, async (next, { isCircle }) => {
      if (isCircle) throw failed(`more than ${MOST_REDIRECTS} redirects`);
      await requirePublic(next);
    });
    if (!answer.ok) {
      answer.cancel();
      throw failed(`HTTP ${answer.status}`);
    }
    const sink = images.open();
    await http.reading(answer, signal, async (body) => {
      for await (const piece of body) await sink.write(piece);
    });
    if (sniffImageType(sink.head) === null) throw failed("no PNG, JPEG or WebP image");
    return sink.image;
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof AddressError ? error.error : failed("no image came").error;
  }
}

/** What is said about an address, unlike what its server said. */
class AddressError extends Error {
  readonly error: ProviderError;

  constructor(error: ProviderError) {
    super(error.message);
    this.error = error;
  }
}

/** Behind a proxy no connection is ours to check, so the name is looked up here, where that is possible. */
async function leadsInside(http: UpstreamHttp, { hostname }: URL): Promise<boolean> {
  if (isPrivateHost(hostname)) return true;
  if (!http.connections.isProxied) return false;
  const addresses = await promisify(http.lookup)(hostname, { all: true }).catch(() => []);
  return addresses.some(({ address }) => isPrivateAddress(address));
}
