import { useEffect, useState } from "react";

const SHOWN_MS = 6000;
let show: (text: string) => void = () => {};

/** Says something in passing: shown for a moment, and read out. */
export function announce(text: string): void {
  show(text);
}

/** The place where `announce` speaks. The page has one. */
export function Announcer() {
  const [said, setSaid] = useState<{ text: string } | null>(null);
  useEffect(() => {
    show = (text) => setSaid({ text });
    return () => {
      show = () => {};
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
