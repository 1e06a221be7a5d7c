import { StorageUnavailable } from "./ports/blob-store.ts";

/**
 * Writes the rows that name files which are stored already. When that fails, `undo` removes the files, unless the rows may
 * have been written all the same. A failure of `undo` is passed over: the sweep removes files without a row.
 */
export async function commitOrUndo<T>(commit: () => Promise<T>, undo: () => Promise<unknown>): Promise<T> {
  try {
    return await commit();
  } catch (error) {
    if (!StorageUnavailable.mayHaveHappened(error)) await undo().catch(() => {});
    throw error;
  }
}
