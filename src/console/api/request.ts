import type { ConsoleBody } from "../../contract/console-api.ts";
import { PATHS } from "../../contract/routes.ts";

/** The session of a person who has signed in. It lasts as long as the tab, and no longer than the service says. */
export interface StoredSession {
  token: string;
  /** Names the session among the tabs of the browser; no secret. */
  id: string;
  /** Unix time in ms. */
  expiresAtMs: number;
}

const STORAGE_KEY = "imgbatch.session";
const listeners = new Set<() => void>();
let current = read();

function read(): StoredSession | null {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "null");
    const session = stored as StoredSession | null;
    return session !== null && session.expiresAtMs > Date.now() ? session : null;
  } catch {
    return null;
  }
}

/** Null without a session that may still be accepted. */
export function currentSession(): StoredSession | null {
  return current;
}

let hasEnded = false;

/** Whether a session of this page ended without its person. */
export function hasSessionEnded(): boolean {
  return hasEnded;
}

/** Replaces the session; null forgets it. Other things that the tab keeps, such as a draft, stay. */
function setSession(session: StoredSession | null, isRefused = false): void {
  hasEnded = isRefused;
  if (session === null) sessionStorage.removeItem(STORAGE_KEY);
  else sessionStorage.setItem(STORAGE_KEY, JSON.stringify(session));
  current = session;
  for (const listener of listeners) listener();
}

/** Returns the function that ends the subscription. */
export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

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
    if (response.status === 401 && isOwn) setSession(null, true);
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

/** Begins a session with a one-time code, or with a key, which is not kept. Throws `ApiError`. */
export async function signIn(codeOrKey: string): Promise<void> {
  const call = { method: "POST", credential: codeOrKey };
  const { token, expires_at } = await fetchJson<ConsoleBody<"Session">>(PATHS.consoleSessions, call);
  setSession({ token, id: randomId(), expiresAtMs: expires_at * 1000 });
}

/** Ends the session, here and at the service, and forgets all that the tab keeps. */
export async function signOut(): Promise<void> {
  try {
    await send(PATHS.consoleSession, { method: "DELETE" });
  } catch {
    // The service has forgotten it, or stopped: its sessions end with it.
  } finally {
    sessionStorage.clear();
    setSession(null);
  }
}

/** 128 random bits. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
