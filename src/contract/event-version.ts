/** The version of the lines of `--events`. Counts up when a field changes its meaning; new fields and new events do not. */
export const EVENT_SCHEMA_VERSION = 1;
