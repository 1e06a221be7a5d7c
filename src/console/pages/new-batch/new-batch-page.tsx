import { useEffect, useId, useMemo, useState } from "react";
import type { BatchModel } from "../../../contract/batch-api.ts";
import { FIXED_LIMITS, type Limits } from "../../../contract/limits.ts";
import { counted } from "../../../kernel/text.ts";
import { FORMAT_NAMES, type FormatName } from "../../../prompts/lines.ts";
import { batchModels } from "../../api/batches.ts";
import { type ReferenceFile, readReference } from "../../api/files.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { DropArea, PROMPT_FILE, ReferenceList } from "../../parts/drop-area.tsx";
import { announce, ErrorNote, Icon } from "../../parts/notes.tsx";
import { useData, useLimits } from "../../parts/use-data.ts";
import { type CheckedDraft, checkDraft } from "./check-draft.ts";
import { type Draft, useDraft } from "./draft.tsx";
import { DraftFields, OptionFieldset } from "./draft-fields.tsx";
import { SendBar } from "./send-bar.tsx";

const FORMATS: Record<FormatName, { label: string; example: string }> = {
  txt: { label: "a prompt a line", example: "a red fox in the snow\na lighthouse at night" },
  jsonl: {
    label: "JSON lines",
    example:
      '{"custom_id": "fox", "prompt": "a red fox in the snow"}\n{"prompt": "a {{animal}} at night", "vars": {"animal": ["owl", "cat"]}, "quality": "high"}',
  },
  csv: { label: "CSV", example: 'custom_id,prompt\nfox,"a red fox, in the snow"' },
  tsv: { label: "TSV", example: "custom_id\tprompt\nfox\ta red fox in the snow" },
};

/** With more lines than this, the marks cost more than a person gains by them. */
const MOST_MARKED_LINES = 2000;

/** Names the field, so that problems can lead to their lines. */
const EDITOR_ID = "prompts";

/** A field for prompts, with the numbers of its lines, and marks on those with problems. */
function PromptEditor(props: {
  text: string;
  format: FormatName;
  problemLines: ReadonlySet<number | null>;
  onText: (text: string) => void;
  onFormat: (format: FormatName) => void;
}) {
  const { text, format, problemLines, onText, onFormat } = props;
  const formatId = useId();
  const shown = text === "" ? FORMATS[format].example : text;
  const lines = useMemo(() => shown.split("\n"), [shown]);
  const isMarked = lines.length <= MOST_MARKED_LINES;
  return (
    <section className="editor" aria-label="Prompts">
      <div className="editor-head">
        <label htmlFor={EDITOR_ID}>Prompts</label>
        <label className="inline" htmlFor={formatId}>
          written as
        </label>
        <select id={formatId} value={format} onChange={(event) => onFormat(event.target.value as FormatName)}>
          {Object.entries(FORMATS).map(([name, { label }]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <div className={`editor-body ${isMarked ? "marked" : ""}`}>
        {isMarked && (
          <div className="marks" aria-hidden="true">
            {lines.map((line, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a line is its number.
              <div key={index} className={problemLines.has(index + 1) ? "problem" : ""}>
                {line === "" ? "\u200b" : line}
              </div>
            ))}
          </div>
        )}
        <textarea
          id={EDITOR_ID}
          value={text}
          spellCheck={false}
          placeholder={FORMATS[format].example}
          aria-describedby="problems"
          aria-invalid={problemLines.size > 0}
          onChange={(event) => onText(event.target.value)}
        />
      </div>
    </section>
  );
}

/** Puts the cursor on a line of the prompts, from 1. */
function goToLine(line: number): void {
  const field = document.getElementById(EDITOR_ID) as HTMLTextAreaElement | null;
  if (!field) return;
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
}

/** The problems of the prompts, by line. A click leads to the line. */
function ProblemList({ checked, fileName }: { checked: CheckedDraft; fileName: string }) {
  const { problems, problemCount, kept, unsent, notes } = checked;
  return (
    <div id="problems" role="status">
      {notes.map((note) => (
        <p key={note} className="quiet small-text unsent" dir="auto">
          {note}
        </p>
      ))}
      {kept.length > 0 && (
        <p className="quiet small-text unsent" dir="auto">
          Metadata of the batch: {kept.join(", ")}.
        </p>
      )}
      {unsent.length > 0 && (
        <p className="quiet small-text unsent" dir="auto">
          Not sent: {unsent.join(", ")}. The service keeps metadata of a whole batch: at most{" "}
          {FIXED_LIMITS.metadataPairs} short texts that are the same in every line. To keep these line by
          line, use <code>imgbatch submit {fileName || "FILE"}</code>, which writes them into results.jsonl.
        </p>
      )}
      {problemCount > 0 && (
        <div className="problems">
          <h2>{counted(problemCount, "problem")} in the prompts</h2>
          <ul>
            {problems.map(({ line, field, message }, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: two problems may read the same.
              <li key={index}>
                {line !== null && (
                  <button type="button" className="line-link" onClick={() => goToLine(line)}>
                    line {line}
                  </button>
                )}
                <span dir="auto">
                  {field !== null && <b>{field}: </b>}
                  {message}
                </span>
              </li>
            ))}
          </ul>
          {problemCount > problems.length && (
            <p className="quiet">
              and {problemCount - problems.length} more, which are shown when these are right
            </p>
          )}
        </div>
      )}
    </div>
  );
}

/** The lists that lines ask for. */
function Lists({ lists, onRemove }: { lists: Draft["lists"]; onRemove: (name: string) => void }) {
  const names = Object.keys(lists);
  if (names.length === 0) return null;
  return (
    <ul className="lists" aria-label="Lists">
      {names.map((name) => (
        <li key={name}>
          <code>@{name}</code>
          <button
            type="button"
            className="button plain"
            aria-label={`Remove ${name}`}
            onClick={() => onRemove(name)}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** Says which reference images are gone since the page was loaded again, before a batch is made without them. */
function LostReferences({ names, onForget }: { names: readonly string[]; onForget: () => void }) {
  const them = names.length === 1 ? "it" : "them";
  return (
    <div className="note warn" role="status">
      <span>
        The page was loaded again, and has lost {counted(names.length, "reference image")}:{" "}
        <b dir="auto">{names.join(", ")}</b>. Add {them} again, or go on without {them}.
      </span>
      <button type="button" className="button" onClick={onForget}>
        Go on without
      </button>
    </div>
  );
}

const PROMPTS = ".jsonl, .csv, .tsv or .txt";
const TEXT_FILE = /\.txt$/i;
const IMAGE_FILE = /\.(png|jpe?g|webp)$/i;

/** A form for a new batch, which also takes files of prompts and reference images. */
export function NewBatchPage() {
  const state = useDraft();
  const { draft, files, lost, change } = state;
  const limits = useLimits();
  const models = useData("models", batchModels);
  const [replacement, setReplacement] = useState<File | null>(null);
  const model = models.value?.find(({ id }) => id === draft.model) ?? models.value?.[0] ?? null;
  const { checked, isCurrent } = useChecked(draft, files, { models: models.value, limits });

  const [loading, setLoading] = useState<string | null>(null);
  useEffect(() => {
    if (loading === null || checked === null || !isCurrent) return;
    const count = checked.batches.reduce((sum, { items }) => sum + items.length, 0);
    announce(`loaded ${loading}: ${counted(count, "prompt")}`);
    setLoading(null);
  }, [loading, checked, isCurrent]);

  const addReference = async (file: File) => {
    const reference = await readReference(file, limits.referenceImageBytes);
    if (typeof reference !== "string") return state.addFile(reference);
    announce(
      IMAGE_FILE.test(file.name)
        ? reference
        : `${file.name} is neither prompts (${PROMPTS}) nor an image (PNG, JPEG or WebP).`,
    );
  };
  const takePrompts = async (file: File) => {
    const format = file.name.split(".").at(-1)?.toLowerCase() as FormatName;
    const text = await file.text().catch(() => null);
    if (text === null) return announce(`${file.name} cannot be read.`);
    change({
      text,
      format,
      fileName: file.name,
      ...(draft.name ? {} : { name: stem(file.name) }),
    });
    setLoading(file.name);
  };
  const takeList = async (file: File) => {
    const text = await file.text().catch(() => null);
    if (text === null) return announce(`${file.name} cannot be read.`);
    state.addList(file.name, text);
    announce(`loaded ${file.name} as a list`);
  };
  const takeFiles = (taken: File[]) => {
    const files = taken.filter(({ name }) => PROMPT_FILE.test(name));
    // A text file is a list where lines ask for it, or may: beside a file that can ask.
    const canAsk = files.some(({ name }) => !TEXT_FILE.test(name));
    const isList = ({ name }: File) =>
      TEXT_FILE.test(name) && (canAsk || checked?.lists.includes(name) === true);
    for (const file of files) if (isList(file)) void takeList(file);
    const [prompts, ...others] = files.filter((file) => !isList(file));
    for (const { name } of others) announce(`${name} is left out: one file of prompts at a time.`);
    for (const file of taken) if (!PROMPT_FILE.test(file.name)) void addReference(file);
    if (prompts === undefined) return;
    if (draft.text.trim() === "") void takePrompts(prompts);
    else setReplacement(prompts);
  };
  const isEmpty = draft.text.trim() === "";
  return (
    <>
      <div className="page-head">
        <h1>New batch</h1>
      </div>
      <ErrorNote error={models.error} />
      <div className="new-batch">
        <div>
          <DropArea
            takesPrompts
            label="Choose files"
            accept={[...FORMAT_NAMES.map((name) => `.${name}`), "image/png", "image/jpeg", "image/webp"].join(
              ",",
            )}
            onFiles={takeFiles}
          >
            <span className="quiet">
              or drop them anywhere: prompts as {PROMPTS}, and images to start from
            </span>
          </DropArea>
          <Lists lists={draft.lists} onRemove={state.removeList} />
          <PromptEditor
            text={draft.text}
            format={draft.format}
            problemLines={new Set(isEmpty ? [] : checked?.problems.map(({ line }) => line))}
            onText={(text) => change({ text })}
            onFormat={(format) => change({ format, fileName: "" })}
          />
          {!isEmpty && checked && <ProblemList checked={checked} fileName={draft.fileName} />}
          {lost.length > 0 && <LostReferences names={lost} onForget={state.forgetLost} />}
          <ReferenceList files={files} onRemove={state.removeFile}>
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
        </div>
        <div>
          <DraftFields
            draft={draft}
            models={models.value ?? []}
            model={model}
            mostImages={limits.outputCountPerItem}
            onChange={change}
          />
          <OptionFieldset
            label="Options of lines without their own"
            options={draft.options}
            model={model}
            onChange={(options) => change({ options })}
          />
        </div>
      </div>
      <SendBar
        state={state}
        checked={isEmpty ? null : checked}
        isCurrent={isCurrent}
        models={models.value ?? []}
      />
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

/**
 * The result of the check: null before the first one. After a change the last one stays until a new one is there, so that
 * nothing jumps while somebody types; it is not current then.
 */
function useChecked(
  draft: Draft,
  files: readonly ReferenceFile[],
  { models, limits }: { models: readonly BatchModel[] | null; limits: Limits },
): { checked: CheckedDraft | null; isCurrent: boolean } {
  const [found, setFound] = useState<{ checked: CheckedDraft; inputs: object } | null>(null);
  const { text, format, fileName, count, sharesReferences, model, options, lists } = draft;
  const inputs = useMemo(
    () => ({
      draft: { text, format, fileName, count, sharesReferences, model, options, lists },
      files,
      known: { limits, models: models ?? [] },
    }),
    [text, format, fileName, count, sharesReferences, model, options, lists, files, limits, models],
  );
  useEffect(() => {
    let isWanted = true;
    const timer = setTimeout(async () => {
      const checked = await checkDraft(inputs.draft, inputs.files, inputs.known);
      if (isWanted) setFound({ checked, inputs });
    }, QUIET_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [inputs]);
  return { checked: found?.checked ?? null, isCurrent: found?.inputs === inputs };
}

function stem(fileName: string): string {
  return fileName.replace(/\.[^.]+$/, "");
}
