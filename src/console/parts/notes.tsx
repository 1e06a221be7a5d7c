import type { ReactNode } from "react";
import { ApiError } from "../api/request.ts";
import { Icon, type IconName } from "./icons.tsx";

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
