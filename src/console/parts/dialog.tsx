import { type ReactNode, useEffect, useRef } from "react";
import { Announcer } from "./announcer.tsx";

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
