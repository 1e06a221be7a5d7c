import { useSyncExternalStore } from "react";
import { currentSession, onSession, type StoredSession } from "../api/session.ts";

export function useSession(): StoredSession | null {
  return useSyncExternalStore(onSession, currentSession);
}
