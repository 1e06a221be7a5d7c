import { useState } from "react";
import type { FormatName } from "../../../prompts/format-names.ts";
import { randomId } from "../../api/sign-in.ts";

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
  /** Images for each prompt that names no count. */
  count: number;
  /** Reference images that no line names belong to every prompt without any. */
  sharesReferences: boolean;
}

const STORAGE_KEY = "imgbatch.draft";

function emptyDraft(): Draft {
  const fields = { model: null, name: "", fileName: "", text: "", count: 1, sharesReferences: true };
  return { ...fields, format: "txt", key: `console-${randomId()}` };
}

export interface DraftState {
  draft: Draft;
  change: (fields: Partial<Draft>) => void;
  /** Begins another draft, which is nothing but empty. */
  renew: () => void;
  /** The same draft under a new key: sent again, it makes new images. */
  renewKey: () => void;
}

/** The draft of the tab, which outlives a reload. */
export function useDraft(): DraftState {
  const [draft, setDraft] = useState(readDraft);
  const keep = (next: Draft) => {
    setDraft(next);
    try {
      sessionStorage.setItem(STORAGE_KEY, JSON.stringify(next));
    } catch {
      // Too large for the storage: it lives as long as the page.
    }
  };
  return {
    draft,
    change: (fields) => keep({ ...draft, ...fields }),
    renew: () => keep({ ...emptyDraft(), model: draft.model }),
    renewKey: () => keep({ ...draft, key: emptyDraft().key }),
  };
}

function readDraft(): Draft {
  try {
    const stored = sessionStorage.getItem(STORAGE_KEY);
    return { ...emptyDraft(), ...(JSON.parse(stored ?? "{}") as Partial<Draft>) };
  } catch {
    return emptyDraft();
  }
}
