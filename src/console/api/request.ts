import { currentSession, endSession } from "./session.ts";

/** An error answer of the service, or no answer at all (`NETWORK`). Its message is for people. */
export class ApiError extends Error {
  readonly code: string;
  /** The HTTP status; 0 without an answer. */
  readonly status: number;

  constructor(code: string, message: string, status: number) {
    super(message);
    this.name = "ApiError";
    this.code = code;
    this.status = status;
  }
}

interface Call extends RequestInit {
  /** Sent as JSON. */
  json?: unknown;
  /** In place of the session's token. */
  credential?: string;
}

/** How often a request for data is sent again when the service asks for patience. */
const MOST_WAITS = 4;
const LONGEST_WAIT_MS = 60_000;

/** Sends a request with the session's token. Throws `ApiError` for everything but a success. A 401 ends the session. */
export async function send(path: string, { json, credential, ...init }: Call = {}): Promise<Response> {
  const token = credential ?? currentSession()?.token ?? "";
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${token}`);
  if (json !== undefined) headers.set("Content-Type", "application/json");
  const body = json === undefined ? init.body : JSON.stringify(json);
  const request = { cache: "no-cache" as const, ...init, headers, ...(body === undefined ? {} : { body }) };
  const isRead = (init.method ?? "GET") === "GET";
  for (let waits = 0; ; waits++) {
    const response = await answerOf(path, request);
    if (response.ok || response.status === 304) return response;
    const waitMs = Number(response.headers.get("retry-after")) * 1000;
    if (response.status === 429 && isRead && waits < MOST_WAITS && waitMs <= LONGEST_WAIT_MS) {
      await sleep(Math.max(waitMs, 250), init.signal ?? null);
      continue;
    }
    const error = await errorOf(response);
    const isOwn = credential === undefined && Object.is(token, currentSession()?.token);
    if (response.status === 401 && isOwn) endSession();
    throw error;
  }
}

/** Sends a request and reads the JSON of its answer. */
export async function fetchJson<T>(path: string, call: Call = {}): Promise<T> {
  const response = await send(path, call);
  return (await response.json()) as T;
}

/** The address of a path of the service, which a proxy may serve below a path of its own. */
export function urlOf(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

async function answerOf(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(urlOf(path), init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError("NETWORK", "The service does not answer. Is it still running?", 0);
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  const fallback = `The service answered HTTP ${response.status}.`;
  try {
    const { error } = (await response.json()) as {
      error?: { code?: unknown; status?: unknown; message?: unknown };
    };
    const code = String(error?.status ?? error?.code ?? response.status);
    return new ApiError(code, typeof error?.message === "string" ? error.message : fallback, response.status);
  } catch {
    return new ApiError(String(response.status), fallback, response.status);
  }
}

/** Waits; rejects when the signal aborts. */
export function sleep(ms: number, signal: AbortSignal | null = null): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
