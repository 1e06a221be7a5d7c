import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api/request.ts";

const PATHS = {
  batches: "M4 5h7v6H4zM13 5h7v6h-7zM4 13h7v6H4zM13 13h7v6h-7z",
  add: "M12 5v14M5 12h14",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 2-2 5 5M15.5 9.5h.01",
  money: "M3 7h18v10H3zM12 9.5v5M10 10.5h3a1 1 0 0 1 0 1.6h-2a1 1 0 0 0 0 1.6h3",
  service: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01",
  download: "M12 4v11m0 0 4-4m-4 4-4-4M5 20h14",
  retry: "M20 12a8 8 0 1 1-2.4-5.7M20 4v4h-4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6 6 18",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  warning: "M12 4 2.5 20h19zM12 10v5M12 17.5h.01",
  out: "M14 5h5v14h-5M4 12h11m0 0-4-4m4 4-4 4",
  search: "M11 5a6 6 0 1 1 0 12 6 6 0 0 1 0-12M15.5 15.5 20 20",
  help: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2V14M12 17.5h.01M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
} as const;
type IconName = keyof typeof PATHS;

/** A line drawing beside a word: it says nothing to those who do not see it. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

const SHOWN_MS = 6000;
/** What was said first goes when there is more. */
const MOST = 5;
let lines = 0;
const listeners = new Set<(text: string, isAlone: boolean) => void>();

/** Says something in passing: shown for a moment, and read out. `isAlone`: what was said before is of no interest any more. */
export function announce(text: string, { isAlone = false } = {}): void {
  for (const listener of listeners) listener(text, isAlone);
}

/** The place where `announce` speaks: one in the page, and one in each dialog, which keeps the page out of sight. */
export function Announcer() {
  const [said, setSaid] = useState<readonly { id: number; text: string }[]>([]);
  useEffect(() => {
    const timers = new Set<ReturnType<typeof setTimeout>>();
    const listener = (text: string, isAlone: boolean) => {
      const line = { id: ++lines, text };
      setSaid((old) => [...(isAlone ? [] : old), line].slice(-MOST));
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

/** A problem, read out at once. Null shows nothing. */
export function ErrorNote({ error }: { error: Error | null }) {
  if (error === null) return null;
  const code = error instanceof ApiError ? error.code : null;
  return (
    <div className="note bad" role="alert">
      <Icon name="warning" />
      <span>
        <Problem message={error.message} code={code === "NETWORK" ? null : code} />
      </span>
    </div>
  );
}

/** What went wrong in words, then the code of the error if there is one. */
export function Problem({ message, code }: { message: string; code: string | null }) {
  return (
    <>
      {message} {code !== null && <code className="code">{code}</code>}
    </>
  );
}

/** Says that there is nothing to see yet, and where to go. */
export function EmptyNote({
  icon,
  title,
  children,
}: {
  icon: IconName;
  title: string;
  children?: ReactNode;
}) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}
