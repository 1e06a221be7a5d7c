import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import type { FormatName } from "../../../prompts/lines.ts";
import type { OptionField } from "../../../prompts/options.ts";
import type { ReferenceFile } from "../../api/files.ts";
import { randomId } from "../../api/request.ts";

/** A batch that is not sent yet. */
export interface Draft {
  /** The idempotency key of its requests: sent twice, the draft makes its batches once. */
  key: string;
  /** Null: the first model of the list. */
  model: string | null;
  name: string;
  /** The file that the prompts came from. */
  fileName: string;
  format: FormatName;
  text: string;
  /** Texts of the form for lines without options of their own, by field. */
  options: Partial<Record<OptionField, string>>;
  /** The lists that lines ask for with `@FILE`, by the name of the file. */
  lists: Record<string, string>;
  /** Images for each prompt that names no count. */
  count: number;
  /** Reference images that no line names belong to every prompt without any. */
  sharesReferences: boolean;
  /** The names of its reference images. A reload leaves nothing else of them. */
  referenceNames: string[];
}

const STORAGE_KEY = "imgbatch.draft";

function emptyDraft(): Draft {
  const fields = { model: null, name: "", fileName: "", text: "", count: 1, sharesReferences: true };
  return {
    ...fields,
    options: {},
    lists: {},
    referenceNames: [],
    format: "txt",
    key: `console-${randomId()}`,
  };
}

interface DraftState {
  draft: Draft;
  /** The reference images. If two have the same name, the later one counts. */
  files: readonly ReferenceFile[];
  /** The names of reference images that a reload of the page has lost. */
  lost: readonly string[];
  change: (fields: Partial<Draft>) => void;
  addFile: (file: ReferenceFile) => void;
  removeFile: (file: ReferenceFile) => void;
  addList: (name: string, text: string) => void;
  removeList: (name: string) => void;
  /** Goes on without the lost reference images. */
  forgetLost: () => void;
  /** Begins another draft, which is nothing but empty. */
  renew: () => void;
  /** The same draft under a new key: sent again, it makes new images. */
  renewKey: () => void;
}

const DraftContext = createContext<DraftState | null>(null);

/** The draft of the tab. */
export function useDraft(): DraftState {
  const state = useContext(DraftContext);
  if (state === null) throw new Error("there is no DraftProvider around this page");
  return state;
}

/** Keeps the draft of the tab while its pages change. All of it but the reference images outlives a reload. */
export function DraftProvider({ children }: { children: ReactNode }) {
  const [draft, setDraft] = useState(readDraft);
  const [files, setFiles] = useState<readonly ReferenceFile[]>([]);
  useEffect(() => keepDraft(draft), [draft]);
  // A file is read for a while, in which other fields may change.
  const change = (fields: Partial<Draft>) => setDraft((old) => ({ ...old, ...fields }));
  const changeNames = (update: (names: string[]) => string[]) =>
    setDraft((old) => ({ ...old, referenceNames: update(old.referenceNames) }));
  const state: DraftState = {
    draft,
    files,
    lost: draft.referenceNames.filter((lost) => !files.some(({ name }) => name === lost)),
    change,
    addFile: (file) => {
      setFiles((old) => [...old.filter(({ name }) => name !== file.name), file]);
      changeNames((names) => [...new Set([...names, file.name])]);
    },
    removeFile: (file) => {
      setFiles((old) => old.filter((each) => each !== file));
      changeNames((names) => names.filter((name) => name !== file.name));
    },
    addList: (name, text) => setDraft((old) => ({ ...old, lists: { ...old.lists, [name]: text } })),
    removeList: (name) => setDraft(({ lists: { [name]: _, ...lists }, ...old }) => ({ ...old, lists })),
    forgetLost: () => change({ referenceNames: files.map(({ name }) => name) }),
    renew: () => {
      setFiles([]);
      setDraft(({ model }) => ({ ...emptyDraft(), model }));
    },
    renewKey: () => change({ key: emptyDraft().key }),
  };
  return <DraftContext value={state}>{children}</DraftContext>;
}

function keepDraft(draft: Draft): void {
  const keep = (kept: Draft) => sessionStorage.setItem(STORAGE_KEY, JSON.stringify(kept));
  try {
    keep(draft);
  } catch {
    // Too large for the storage. Its key stays all the same: dropped again, the same file makes no second batch.
    keep({ ...draft, text: "", lists: {} });
  }
}

function readDraft(): Draft {
  try {
    const stored = sessionStorage.getItem(STORAGE_KEY);
    return { ...emptyDraft(), ...(JSON.parse(stored ?? "{}") as Partial<Draft>) };
  } catch {
    return emptyDraft();
  }
}
