import { useState } from "react";
import type { BatchObject } from "../../../contract/batch-api.ts";
import { deleteOutputs, deleteRecord } from "../../api/batches.ts";
import { ConfirmDialog } from "../../parts/dialog.tsx";
import { announce } from "../../parts/notes.tsx";
import { go, hrefOf } from "../../parts/use-route.ts";

/** Asks which parts of an ended batch to delete. */
export function DeleteDialog(props: { batch: BatchObject; onChanged: () => void; onClose: () => void }) {
  const { batch, onChanged, onClose } = props;
  const hasOutputs = batch.status !== "output_deleted" && batch.success_count > 0;
  const [outputs, setOutputs] = useState(hasOutputs);
  const [record, setRecord] = useState(!hasOutputs);
  return (
    <ConfirmDialog
      title="Delete from the service?"
      action="Delete"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        if (outputs) await deleteOutputs(batch.id);
        if (record) await deleteRecord(batch.id);
        if (outputs || record) announce("Deleted.");
        if (record) go(hrefOf("batches"));
        else onChanged();
      }}
    >
      {hasOutputs && (
        <label className="check">
          <input type="checkbox" checked={outputs} onChange={(event) => setOutputs(event.target.checked)} />
          the image files; this cannot be undone
        </label>
      )}
      <label className="check">
        <input type="checkbox" checked={record} onChange={(event) => setRecord(event.target.checked)} />
        the entry in your list
      </label>
    </ConfirmDialog>
  );
}
