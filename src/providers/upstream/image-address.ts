import { promisify } from "node:util";
import { sniffImageType } from "../../contract/images/image-types.ts";
import type { ProviderError } from "../../domain/ports/image-provider.ts";
import { decodeDataUrl } from "../../kernel/base64.ts";
import { ambiguous } from "./classify.ts";
import type { UpstreamAnswer, UpstreamHttp } from "./http.ts";
import { isPrivateAddress, isPrivateHost } from "./private-addresses.ts";

const MAX_IMAGE_BYTES = 64 * 1024 * 1024;
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
  decode = decodeDataUrl,
): Promise<Buffer> {
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
    let answer: UpstreamAnswer;
    try {
      answer = await http.send(isOwn ? direct : foreign, url, request, MAX_IMAGE_BYTES, signal);
    } catch {
      signal.throwIfAborted();
      throw failed("no image came");
    }
    const { status, bytes } = answer;
    const location = status >= 300 && status < 400 ? answer.headers.get("location") : null;
    if (location === null) {
      if (status < 200 || status >= 300) throw failed(`HTTP ${status}`);
      if (sniffImageType(bytes) === null) throw failed("no PNG, JPEG or WebP image");
      return bytes;
    }
    url = parse(location, url);
  }
  throw failed(`more than ${MAX_REDIRECTS} redirects`);
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
