import { type ReactNode, useEffect, useRef, useState } from "react";
import type { ReferenceFile } from "../api/files.ts";
import { currentSession } from "../api/request.ts";
import { announce, Icon } from "./notes.tsx";
import { go, hrefOf } from "./route.ts";

/** Something on the page that takes files. */
interface Taker {
  takesPrompts: boolean;
  take: (files: File[]) => void;
  setOver: (isOver: boolean) => void;
}

/** The taker of the page; null where it has none. */
let taker: Taker | null = null;
/** Files that were dropped on a page that does not take them, for the next one. */
let kept: File[] = [];

/** The names of files of prompts. */
export const PROMPT_FILE = /\.(jsonl|csv|tsv|txt)$/i;

/**
 * From now on a file may be dropped anywhere: the drop area of the page takes it, and on a page that does not take it the form
 * for a new batch opens with it. A drop that holds no file says so. Text that is dragged into a field is left to the browser.
 */
export function takeDrops(): void {
  addEventListener("dragover", (event) => {
    if (isForField(event)) return;
    event.preventDefault();
    taker?.setOver(hasFiles(event));
  });
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) taker?.setOver(false);
  });
  addEventListener("drop", (event) => {
    taker?.setOver(false);
    if (isForField(event)) return;
    event.preventDefault();
    const { files, folders } = contentOf(event);
    for (const name of folders) announce(`${name} is a folder: drop the files that are in it.`);
    if (files.length === 0 && folders.length === 0)
      announce("That is no file. Files of prompts and images can be dropped here.");
    if (files.length === 0) return;
    const hasPrompts = files.some(({ name }) => PROMPT_FILE.test(name));
    if (taker !== null && (taker.takesPrompts || !hasPrompts)) return taker.take(files);
    kept = [...kept, ...files];
    if (currentSession() === null) announce("Sign in: then the form for a new batch takes what you dropped.");
    go(hrefOf("new"));
  });
}

const hasFiles = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes("Files") === true;

function isForField(event: DragEvent): boolean {
  return !hasFiles(event) && event.target instanceof Element && event.target.matches("input, textarea");
}

function contentOf({ dataTransfer }: DragEvent): { files: File[]; folders: string[] } {
  const folders = [...(dataTransfer?.items ?? [])].flatMap((item) => {
    const entry = item.kind === "file" ? item.webkitGetAsEntry() : null;
    return entry?.isDirectory ? [entry.name] : [];
  });
  const files = [...(dataTransfer?.files ?? [])].filter(({ name }) => !folders.includes(name));
  return { files, folders };
}

/** Takes files that are dropped anywhere on its page, or chosen by its button. A page has one at most. */
export function DropArea(props: {
  /** The words on the button. */
  label: string;
  /** Which files the chooser offers: `accept` of an input. */
  accept: string;
  /** Default: false. Then the form for a new batch opens with what is dropped, if a file of prompts is among it. */
  takesPrompts?: boolean;
  onFiles: (files: File[]) => void;
  children?: ReactNode;
}) {
  const { label, accept, takesPrompts = false, onFiles, children } = props;
  const [isOver, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const latest = useRef(onFiles);
  latest.current = onFiles;
  useEffect(() => {
    const own: Taker = { takesPrompts, take: (files) => latest.current(files), setOver };
    taker = own;
    if (kept.length > 0) own.take(kept);
    kept = [];
    return () => {
      if (taker === own) taker = null;
    };
  }, [takesPrompts]);
  return (
    <div className={`drop ${isOver ? "over" : ""}`}>
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

/** The reference images of an item. */
export function ReferenceList(props: {
  files: readonly ReferenceFile[];
  onRemove: (file: ReferenceFile) => void;
  children?: ReactNode;
}) {
  const { files, onRemove, children } = props;
  if (files.length === 0) return null;
  return (
    <section className="references" aria-label="Reference images">
      <h2>References</h2>
      <ul className="reference-row">
        {files.map((file) => (
          <li key={file.url}>
            <img src={file.url} alt="" />
            <span className="reference-name" title={file.name}>
              {file.name}
            </span>
            <button
              type="button"
              className="button plain"
              aria-label={`Remove ${file.name}`}
              onClick={() => onRemove(file)}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      {children}
    </section>
  );
}
