import { ImgbatchError } from "../contract/errors.ts";
import { hideUsedKeys } from "../kernel/api-keys.ts";
import { NotTheService } from "./network-errors.ts";

/** A service redirects once or twice. More redirects are a circle. */
const MOST_REDIRECTS = 3;
const STATUSES = [301, 302, 303, 307, 308];

/** The hosts that a request may lead to. */
interface Bounds {
  baseUrl: string;
  /** The answer may come from another host; the key is not sent there. */
  elsewhere: boolean;
}

/**
 * `fetch` that follows few redirects, and only those of a GET. Another method would lose its body, so its redirect is
 * returned as it is. The key never goes to another origin, and is not sent again after one. Throws `BAD_RESPONSE`, naming
 * the target, for a circle and for another origin that is not allowed.
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

/** Null when the answer is not a redirect that can be followed. */
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
