import { type ReactNode, useState } from "react";
import { Dialog } from "./dialog.tsx";
import { ErrorNote } from "./notes.tsx";

/** Asks before something that cannot be undone, or that costs money, and shows when it fails. */
export function ConfirmDialog(props: {
  title: string;
  children: ReactNode;
  /** The word on the button, such as `Delete images`. */
  action: string;
  isDangerous?: boolean;
  onConfirm: () => Promise<void>;
  onClose: () => void;
}) {
  const { title, children, action, isDangerous = false, onConfirm, onClose } = props;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const confirm = async () => {
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      onClose();
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown : new Error(String(thrown)));
      setBusy(false);
    }
  };
  return (
    <Dialog label={title} className="small" onClose={onClose}>
      <h2>{title}</h2>
      <div className="dialog-text">{children}</div>
      <ErrorNote error={error} />
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Back
        </button>
        <button
          type="button"
          className={`button ${isDangerous ? "danger" : "primary"}`}
          disabled={isBusy}
          onClick={confirm}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
