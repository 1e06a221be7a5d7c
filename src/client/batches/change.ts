import type { Http, HttpRequest } from "../../http/http.ts";

/**
 * Sends a request that changes a batch. The answer is not read: services differ in it, and some send none. Returns how
 * often the request was sent, and the error of the last attempt or null.
 */
export async function sendChange(
  http: Http,
  request: HttpRequest,
): Promise<{ attempts: number; error: unknown }> {
  let attempts = 0;
  const next = async () => {
    attempts++;
    return request;
  };
  try {
    await http.stream(next, async (response) => response.cancel());
    return { attempts, error: null };
  } catch (error) {
    return { attempts, error };
  }
}
