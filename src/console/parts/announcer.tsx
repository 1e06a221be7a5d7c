import { useEffect, useState } from "react";

const SHOWN_MS = 6000;
/** What was said first goes when there is more. */
const MOST = 5;
let lines = 0;
const listeners = new Set<(text: string) => void>();

/** Says something in passing: shown for a moment, and read out. */
export function announce(text: string): void {
  for (const listener of listeners) listener(text);
}

/** The place where `announce` speaks: one in the page, and one in each dialog, which keeps the page out of sight. */
export function Announcer() {
  const [said, setSaid] = useState<readonly { id: number; text: string }[]>([]);
  useEffect(() => {
    const timers = new Set<ReturnType<typeof setTimeout>>();
    const listener = (text: string) => {
      const line = { id: ++lines, text };
      setSaid((old) => [...old, line].slice(-MOST));
      timers.add(setTimeout(() => setSaid((old) => old.filter(({ id }) => id !== line.id)), SHOWN_MS));
    };
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      for (const timer of timers) clearTimeout(timer);
    };
  }, []);
  return (
    <div className="announcer" role="status" aria-live="polite">
      {said.map(({ id, text }) => (
        <span key={id} className="said">
          {text}
        </span>
      ))}
    </div>
  );
}
