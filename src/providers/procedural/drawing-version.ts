/** The version of the drawings. It changes whenever the same request gives other pixels. */
export const DRAWING_VERSION = "1";
