import { useId, useMemo } from "react";
import { counted } from "../../../kernel/text.ts";
import type { FormatName } from "../../../prompts/lines.ts";
import type { CheckedDraft } from "./check-draft.ts";

const FORMATS: Record<FormatName, { label: string; example: string }> = {
  txt: { label: "a prompt a line", example: "a red fox in the snow\na lighthouse at night" },
  jsonl: {
    label: "JSON lines",
    example:
      '{"custom_id": "fox", "prompt": "a red fox in the snow"}\n{"prompt": "a lighthouse", "output_count": 2}',
  },
  csv: { label: "CSV", example: 'custom_id,prompt\nfox,"a red fox, in the snow"' },
  tsv: { label: "TSV", example: "custom_id\tprompt\nfox\ta red fox in the snow" },
};

/** With more lines than this, the marks cost more than a person gains by them. */
const MOST_MARKED_LINES = 2000;

/** Names the field, so that problems can lead to their lines. */
const EDITOR_ID = "prompts";

/** A field for prompts, with the numbers of its lines, and marks on those with problems. */
export function PromptEditor(props: {
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
export function ProblemList({ checked }: { checked: CheckedDraft }) {
  const { problems, problemCount, unsent } = checked;
  return (
    <div id="problems" role="status">
      {unsent.length > 0 && (
        <p className="quiet small-text unsent" dir="auto">
          Not sent, since the service knows no such fields: {unsent.join(", ")}. It knows prompt, custom_id,
          output_count and reference_images.
        </p>
      )}
      {problemCount > 0 && (
        <div className="problems">
          <h2>
            {counted(problemCount, "problem")}; nothing is sent before{" "}
            {problemCount === 1 ? "it is" : "they are"} mended
          </h2>
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

/** Brings the problems into view: they stand below the prompts, which may be long. */
export function showProblems(): void {
  document.getElementById("problems")?.scrollIntoView({ block: "center" });
}
