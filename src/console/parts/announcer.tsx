import { useEffect, useState } from "react";

const SHOWN_MS = 6000;
const listeners = new Set<(text: string) => void>();

/** Says something in passing: shown for a moment, and read out. */
export function announce(text: string): void {
  for (const listener of listeners) listener(text);
}

/** The place where `announce` speaks: one in the page, and one in each dialog, which keeps the page out of sight. */
export function Announcer() {
  const [said, setSaid] = useState<{ text: string } | null>(null);
  useEffect(() => {
    const listener = (text: string) => setSaid({ text });
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <div className="announcer" role="status" aria-live="polite">
      {said && <span className="said">{said.text}</span>}
    </div>
  );
}
