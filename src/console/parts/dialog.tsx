import { type ReactNode, useEffect, useRef, useState } from "react";
import { Announcer, ErrorNote } from "./notes.tsx";

/**
 * A modal dialog: the browser keeps the focus inside, and gives it back at the end. Escape and a click beside it call
 * `onClose`.
 */
export function Dialog(props: {
  label: string;
  className?: string;
  /** The focus begins at the dialog itself, not at its first button: a picture should not begin with a frame around it. */
  focusesItself?: boolean;
  onClose: () => void;
  children: ReactNode;
}) {
  const { label, className = "", focusesItself = false, onClose, children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    const focused = document.activeElement;
    element?.showModal();
    if (focusesItself) element?.focus();
    return () => {
      element?.close();
      // The dialog may have removed the button that opened it.
      const next = focused?.isConnected ? focused : document.getElementById("main");
      if (next instanceof HTMLElement) next.focus();
    };
  }, [focusesItself]);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same.
    <dialog
      ref={dialog}
      tabIndex={-1}
      className={`dialog ${className}`}
      aria-label={label}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      {children}
      <Announcer />
    </dialog>
  );
}

/** Asks before something that cannot be undone, or that costs money, and shows when it fails. */
export function ConfirmDialog(props: {
  title: string;
  children: ReactNode;
  /** The word on the button, such as `Delete images`. */
  action: string;
  /** Default: true. */
  isReady?: boolean;
  className?: string;
  isDangerous?: boolean;
  onConfirm: () => Promise<void>;
  onClose: () => void;
}) {
  const { title, children, action, isReady = true, isDangerous = false, onConfirm, onClose } = props;
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
    <Dialog label={title} className={props.className ?? "small"} onClose={onClose}>
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
          disabled={isBusy || !isReady}
          onClick={confirm}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
