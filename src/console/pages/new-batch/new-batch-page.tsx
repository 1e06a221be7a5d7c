import { useEffect, useState } from "react";
import type { BatchModel } from "../../../contract/batch-api/models.ts";
import { FORMAT_NAMES, type FormatName } from "../../../prompts/format-names.ts";
import { batchModels } from "../../api/batches.ts";
import { type ReferenceFile, readReference } from "../../api/reference-file.ts";
import { useData } from "../../hooks/use-data.ts";
import { announce } from "../../parts/announcer.tsx";
import { ConfirmDialog } from "../../parts/confirm-dialog.tsx";
import { DropArea } from "../../parts/drop-area.tsx";
import { ErrorNote } from "../../parts/notes.tsx";
import { ReferenceList } from "../../parts/reference-list.tsx";
import { type CheckedDraft, checkDraft } from "./check-draft.ts";
import { DraftFields } from "./draft-fields.tsx";
import { ProblemList } from "./problem-list.tsx";
import { PromptEditor } from "./prompt-editor.tsx";
import { SendBar } from "./send-bar.tsx";
import { useDraft } from "./use-draft.ts";

const PROMPT_FILE = /\.(jsonl|csv|tsv|txt)$/i;

/** A form for a new batch, which also takes files of prompts and reference images. */
export function NewBatchPage() {
  const state = useDraft();
  const { draft, change } = state;
  const models = useData("models", batchModels);
  const [files, setFiles] = useState<readonly ReferenceFile[]>([]);
  const [replacement, setReplacement] = useState<File | null>(null);
  const model = models.value?.find(({ id }) => id === draft.model) ?? models.value?.[0] ?? null;
  const checked = useChecked(draft, files, model);

  const addReference = async (file: File) => {
    const reference = await readReference(file);
    if (typeof reference === "string") return announce(reference);
    setFiles((old) => [...old.filter(({ name }) => name !== reference.name), reference]);
  };
  const takePrompts = async (file: File) => {
    const format = file.name.split(".").at(-1)?.toLowerCase() as FormatName;
    change({
      text: await file.text(),
      format,
      fileName: file.name,
      ...(draft.name ? {} : { name: stem(file.name) }),
    });
    announce(`${file.name} is read.`);
  };
  const takeFiles = (taken: File[]) => {
    for (const file of taken) {
      if (!PROMPT_FILE.test(file.name)) void addReference(file);
      else if (draft.text.trim() === "") void takePrompts(file);
      else setReplacement(file);
    }
  };
  const isEmpty = draft.text.trim() === "";
  return (
    <>
      <div className="page-head">
        <h1>New batch</h1>
      </div>
      <ErrorNote error={models.error} />
      <DraftFields draft={draft} models={models.value ?? []} model={model} onChange={change} />
      <DropArea
        label="Choose files"
        accept={[...FORMAT_NAMES.map((name) => `.${name}`), "image/png", "image/jpeg", "image/webp"].join(
          ",",
        )}
        onFiles={takeFiles}
      >
        <span className="quiet">
          or drop them here: prompts as .jsonl, .csv, .tsv or .txt, and images to start from
        </span>
      </DropArea>
      <PromptEditor
        text={draft.text}
        format={draft.format}
        problemLines={new Set(isEmpty ? [] : checked?.problems.map(({ line }) => line))}
        onText={(text) => change({ text })}
        onFormat={(format) => change({ format, fileName: "" })}
      />
      {!isEmpty && checked && <ProblemList checked={checked} />}
      <ReferenceList files={files} onRemove={(file) => setFiles(files.filter((each) => each !== file))}>
        {(checked?.unnamed.length ?? 0) > 0 && (
          <label className="check">
            <input
              type="checkbox"
              checked={draft.sharesReferences}
              onChange={(event) => change({ sharesReferences: event.target.checked })}
            />
            give those that no line names to every prompt that names none
          </label>
        )}
      </ReferenceList>
      <SendBar state={state} checked={isEmpty ? null : checked} model={model} onSent={() => setFiles([])} />
      {replacement && (
        <ConfirmDialog
          title="Replace the prompts?"
          action={`Use ${replacement.name}`}
          onClose={() => setReplacement(null)}
          onConfirm={() => takePrompts(replacement)}
        >
          <p>The prompts of the form are replaced by those of the file.</p>
        </ConfirmDialog>
      )}
    </>
  );
}

const QUIET_MS = 150;

/** The result of the check, a moment after the last change; null while it is not known. */
function useChecked(
  draft: ReturnType<typeof useDraft>["draft"],
  files: readonly ReferenceFile[],
  model: BatchModel | null,
): CheckedDraft | null {
  const [checked, setChecked] = useState<CheckedDraft | null>(null);
  const { text, format, fileName, count, sharesReferences } = draft;
  const most = model?.max_reference_images ?? Number.POSITIVE_INFINITY;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the other fields of a draft change nothing about its prompts.
  useEffect(() => {
    let isCurrent = true;
    setChecked(null);
    const timer = setTimeout(async () => {
      const result = await checkDraft(draft, files, most);
      if (isCurrent) setChecked(result);
    }, QUIET_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, format, fileName, count, sharesReferences, files, most]);
  return checked;
}

function stem(fileName: string): string {
  return fileName.replace(/\.[^.]+$/, "");
}
