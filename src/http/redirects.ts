import { ImgbatchError } from "../contract/errors.ts";
import { hideUsedKeys } from "../kernel/hide-keys.ts";
import { NotTheService } from "./network-errors.ts";
import { type Answer, type Sending, send } from "./send.ts";

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
 * Sends a request and follows few redirects, and only those of a GET. Another method would lose its body, so its redirect is
 * returned as it is. The key never goes to another origin, and is not sent again after one. Throws `BAD_RESPONSE`, naming
 * the target, for a circle and for another origin that is not allowed.
 */
export async function sendWithin(
  { baseUrl, elsewhere }: Bounds,
  start: string,
  request: Sending & { headers: Record<string, string> },
): Promise<Answer> {
  const own = new URL(baseUrl).origin;
  let url = start;
  let { headers } = request;
  for (let count = 0; ; count++) {
    const answer = await send(url, { ...request, headers });
    const next = request.method === "GET" ? nextOf(answer, url) : null;
    if (next === null) return answer;
    answer.cancel();
    const { status: httpStatus } = answer;
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
function nextOf({ headers, status }: Answer, from: string): URL | null {
  const location = headers.get("location");
  if (!STATUSES.includes(status) || location === null || !URL.canParse(location, from)) return null;
  const next = new URL(location, from);
  const isHttp = next.protocol === "http:" || next.protocol === "https:";
  // A password in the address would be sent.
  return isHttp && next.username === "" && next.password === "" ? next : null;
}

function withoutKey(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.toLowerCase() !== "authorization"),
  );
}
