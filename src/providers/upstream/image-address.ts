import { promisify } from "node:util";
import { sniffImageType } from "../../contract/image-formats.ts";
import type { LargeImage, ProviderError } from "../../domain/ports/image-provider.ts";
import type { ImageSink, ImagesJson } from "./answer-images.ts";
import { ambiguous } from "./classify.ts";
import type { UpstreamAnswer, UpstreamHttp } from "./http.ts";
import { isPrivateAddress, isPrivateHost } from "./private-addresses.ts";

const MAX_REDIRECTS = 3;

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
  const failed = (why: string): ProviderError => ambiguous(http.name, `the address of its image: ${why}`);
  const own = new URL(http.baseUrl).origin;
  let url = parse(address, `${http.baseUrl}/`);
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    if (url === null) throw failed("not an HTTP address");
    const isOwn = url.origin === own;
    if (!isOwn && (await leadsInside(http, url))) throw failed("not of the public internet");
    const { own: direct, foreign } = http.connections;
    const request = { method: "GET", headers: isOwn ? headers : {} } as const;
    const sink = images.open();
    let answer: UpstreamAnswer<ImageSink>;
    try {
      answer = await http.send(isOwn ? direct : foreign, url, request, signal, (body) => writeTo(sink, body));
    } catch {
      signal.throwIfAborted();
      throw failed("no image came");
    }
    if ("read" in answer) {
      if (sniffImageType(sink.head) === null) throw failed("no PNG, JPEG or WebP image");
      return sink.image;
    }
    const { status } = answer;
    const location = status >= 300 && status < 400 ? answer.headers.get("location") : null;
    if (location === null) throw failed(`HTTP ${status}`);
    url = parse(location, url);
  }
  throw failed(`more than ${MAX_REDIRECTS} redirects`);
}

async function writeTo(sink: ImageSink, body: AsyncIterable<Buffer>): Promise<ImageSink> {
  for await (const chunk of body) await sink.write(chunk);
  return sink;
}

function parse(address: string, base: string | URL): URL | null {
  if (!URL.canParse(address, base)) return null;
  const url = new URL(address, base);
  return url.protocol === "http:" || url.protocol === "https:" ? url : null;
}

/** Behind a proxy no connection is ours to check, so the name is looked up here, where that is possible. */
async function leadsInside(http: UpstreamHttp, { hostname }: URL): Promise<boolean> {
  if (isPrivateHost(hostname)) return true;
  if (!http.connections.isProxied) return false;
  const addresses = await promisify(http.lookup)(hostname, { all: true }).catch(() => []);
  return addresses.some(({ address }) => isPrivateAddress(address));
}
