import { type ReactNode, useRef, useState } from "react";

/** Takes files that are dropped on it, or chosen by its button. */
export function DropArea(props: {
  /** The words on the button. */
  label: string;
  /** Which files the chooser offers: `accept` of an input. */
  accept: string;
  onFiles: (files: File[]) => void;
  children?: ReactNode;
}) {
  const { label, accept, onFiles, children } = props;
  const [isOver, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the button does the same for the keyboard.
    <div
      className={`drop ${isOver ? "over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        onFiles([...event.dataTransfer.files]);
      }}
    >
      <input
        ref={input}
        type="file"
        hidden
        multiple
        accept={accept}
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
      <button type="button" className="button" onClick={() => input.current?.click()}>
        {label}
      </button>
      {children}
    </div>
  );
}
