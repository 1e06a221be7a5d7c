import { counted } from "../../../kernel/text.ts";
import type { CheckedDraft } from "./check-draft.ts";
import { goToLine } from "./prompt-editor.tsx";

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
