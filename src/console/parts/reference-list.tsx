import type { ReactNode } from "react";
import type { ReferenceFile } from "../api/reference-file.ts";
import { Icon } from "./icons.tsx";

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
