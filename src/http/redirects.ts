import { ImgbatchError } from "../contract/errors.ts";
import { hideUsedKeys } from "../kernel/api-keys.ts";
import { NotTheService } from "./network-errors.ts";

/** A service moves its answers once or twice; what goes on beyond leads in a circle. */
const MOST_REDIRECTS = 3;
const STATUSES = [301, 302, 303, 307, 308];

/** Where a request may lead. */
interface Bounds {
  baseUrl: string;
  /** The answer may come from another host; the key is not sent there. */
  elsewhere: boolean;
}

/**
 * `fetch`, with few redirects and only those of a GET: anything else would lose its body without a word, so its redirect
 * is answered as it came. The key never goes to another origin, and once there it does not come back. Throws
 * `BAD_RESPONSE`, naming where it leads, for a circle and for another origin without leave.
 */
export async function fetchWithin(
  { baseUrl, elsewhere }: Bounds,
  start: string,
  init: RequestInit & { headers: Record<string, string> },
): Promise<Response> {
  const own = new URL(baseUrl).origin;
  let url = start;
  let headers = init.headers;
  for (let count = 0; ; count++) {
    const response = await fetch(url, { redirect: "manual", ...init, headers });
    const next = init.method === "GET" ? nextOf(response, url) : null;
    if (next === null) return response;
    await response.body?.cancel();
    const { status: httpStatus } = response;
    const cause = new NotTheService("a redirect");
    const where = hideUsedKeys(next.origin + next.pathname);
    if (next.origin !== own && !elsewhere) {
      const message = `The service redirects to ${where}. If you trust that, give its address as the base URL.`;
      throw new ImgbatchError("BAD_RESPONSE", message, { httpStatus, cause });
    }
    if (count === MOST_REDIRECTS) {
      const message = `The service redirects again and again, the last time to ${where}.`;
      throw new ImgbatchError("BAD_RESPONSE", message, { httpStatus, cause });
    }
    if (next.origin !== own) headers = withoutKey(headers);
    url = next.href;
  }
}

/** Null when the answer is no redirect that can be followed. */
function nextOf(response: Response, from: string): URL | null {
  const location = response.headers.get("location");
  if (!STATUSES.includes(response.status) || location === null || !URL.canParse(location, from)) return null;
  const next = new URL(location, from);
  return next.protocol === "http:" || next.protocol === "https:" ? next : null;
}

function withoutKey(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.toLowerCase() !== "authorization"),
  );
}
