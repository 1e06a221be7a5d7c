/** The addresses of the services whose answers are compared with the description of the API. */
const watched = new Set<string>();
const found = new Set<string>();
const checks = new Set<Promise<void>>();

/** Compares each answer of the service that `fetch` gets with the description, until the returned function is called. */
export function watchAnswers(url: string): () => void {
  const { origin } = new URL(url);
  watched.add(origin);
  return () => void watched.delete(origin);
}

/** What was not as described since the last call. */
export async function takeFaults(): Promise<string[]> {
  await Promise.all(checks);
  const faults = [...found];
  found.clear();
  return faults;
}

const realFetch = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const url = new URL(input instanceof Request ? input.url : String(input));
  const isWatched = watched.has(url.origin);
  const answer = await realFetch(input, init);
  if (isWatched) {
    const checking = check(url.pathname, init, answer).finally(() => checks.delete(checking));
    checks.add(checking);
  }
  return answer;
};

async function check(pathname: string, init: RequestInit = {}, answer: Response): Promise<void> {
  // A test has ordered it, and it need not be as described.
  if (answer.headers.has("x-imgbatch-fault")) return;
  const { method = "GET", headers } = init;
  const isJson =
    /^application\/json(;|$)/.test(answer.headers.get("content-type") ?? "") && method !== "HEAD";
  // A copy that nobody reads to its end would hold up the body itself.
  const copy = isJson ? answer.clone() : null;
  const { apiChecker } = await import("./openapi.ts");
  const request = { method: method.toLowerCase(), pathname, headers: new Headers(headers) };
  // A body that breaks off has no faults.
  const faults = await apiChecker()
    .faultsOf(request, answer, copy && (() => copy.json()))
    .catch(() => []);
  for (const fault of faults) found.add(fault);
}
