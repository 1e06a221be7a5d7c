import { counted } from "../../../kernel/text.ts";

/** Says which reference images are gone since the page was loaded again, before a batch is made without them. */
export function LostReferences({ names, onForget }: { names: readonly string[]; onForget: () => void }) {
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
