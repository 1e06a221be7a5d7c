/** The names of files and folders that a run makes in its directory. */
export const INPUT_FILE = "input.jsonl";
export const IMAGES_FOLDER = "images";
export const REFERENCES_FOLDER = "references";
/** The images of prompts that an update changed or removed. */
export const REMOVED_FOLDER = "removed";
