import { statusWord } from "./words.ts";

const TONES: Record<string, string> = {
  completed: "good",
  success: "good",
  ok: "good",
  failed: "bad",
  disabled: "bad",
  cancelled: "quiet",
  output_deleted: "quiet",
  cooling: "warn",
};

/** The status of a batch, an item or a provider. */
export function StatusBadge({ status }: { status: string }) {
  return <span className={`badge ${TONES[status] ?? "busy"}`}>{statusWord(status)}</span>;
}
