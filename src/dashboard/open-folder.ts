import { openPath } from "../processes/programs.ts";

/**
 * Shows a folder in the file manager of the desktop. Returns a message for the person: where nothing can be opened, it
 * names the path of the folder.
 */
export async function openFolder(path: string): Promise<string> {
  return (await openPath(path)) ? `Opened ${path}.` : `The files are in ${path}.`;
}
