import { sniffImageType } from "../../contract/image-formats.ts";
import type { LargeImage, ProviderError } from "../../domain/ports/image-provider.ts";
import { followRedirects, MOST_REDIRECTS } from "../../http/redirects.ts";
import type { ImagesJson } from "./answer-images.ts";
import { ambiguous } from "./classify.ts";
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
  const failed = (why: string, status: number | null = null) =>
    new AddressError(ambiguous(http.name, `the address of its image: ${why}`, status));
  const isOwn = (url: URL) => url.origin === new URL(http.baseUrl).origin;
  const requirePublic = async (url: URL) => {
    if (await http.leadsInside(url)) throw failed("not of the public internet");
  };
  const hop = (url: URL) =>
    http.send(http.connectionsTo(url), url, { headers: isOwn(url) ? headers : {} }, signal);
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
      throw failed(`HTTP ${answer.status}`, answer.status);
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

/** Our own words about an address, as opposed to those of its server. */
class AddressError extends Error {
  readonly error: ProviderError;

  constructor(error: ProviderError) {
    super(error.message);
    this.error = error;
  }
}
