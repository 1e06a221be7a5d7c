import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api/request.ts";
import { Icon, type IconName } from "./icons.tsx";

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
