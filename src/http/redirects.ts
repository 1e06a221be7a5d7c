import type { Answer } from "./transport.ts";

/** A service redirects once or twice. More redirects are a circle. */
export const MOST_REDIRECTS = 3;
const STATUSES = [301, 302, 303, 307, 308];

/**
 * Sends a GET with `hop`, and follows redirects to HTTP addresses without a password. `allow` is asked before each of
 * them and throws to refuse it; `isCircle`: there were too many, so it must throw. Any other answer is returned.
 */
export async function followRedirects(
  start: URL,
  hop: (url: URL) => Promise<Answer>,
  allow: (next: URL, about: { status: number; isCircle: boolean }) => void | Promise<void>,
): Promise<Answer> {
  let url = start;
  for (let count = 0; ; count++) {
    const answer = await hop(url);
    const next = targetOf(answer, url);
    if (next === null) return answer;
    answer.cancel();
    await allow(next, { status: answer.status, isCircle: count === MOST_REDIRECTS });
    url = next;
  }
}

/** Null when the answer is not a redirect that can be followed. */
function targetOf({ headers, status }: Answer, from: URL): URL | null {
  const location = headers.get("location");
  if (!STATUSES.includes(status) || location === null || !URL.canParse(location, from)) return null;
  const next = new URL(location, from);
  const isHttp = next.protocol === "http:" || next.protocol === "https:";
  // A password in the address would be sent.
  return isHttp && next.username === "" && next.password === "" ? next : null;
}
