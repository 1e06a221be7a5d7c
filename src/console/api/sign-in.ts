import type { ConsoleBody } from "../../contract/console-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { fetchJson, send } from "./request.ts";
import { setSession } from "./session.ts";

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
