import { useSyncExternalStore } from "react";
import { currentSession, onSession, type StoredSession } from "../api/session.ts";

/** The session of the tab; null before the sign-in and after its end. */
export function useSession(): StoredSession | null {
  return useSyncExternalStore(onSession, currentSession);
}
