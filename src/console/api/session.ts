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

/**
 * Ends a session that the service does not accept any more. Other things that the tab keeps, such as a draft, stay.
 */
export function endSession(): void {
  replace(null, true);
}

/** Replaces the session; null forgets it. */
export function setSession(session: StoredSession | null): void {
  replace(session, false);
}

function replace(session: StoredSession | null, isEnd: boolean): void {
  hasEnded = isEnd;
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
