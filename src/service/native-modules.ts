/** The modules that are compiled for each system. */
export const NATIVE_MODULES = ["better-sqlite3", "sharp"] as const;
export type NativeModule = (typeof NATIVE_MODULES)[number];

/** Loads and uses a native module once. Throws its error when it does not work on this system. */
export async function loadNativeModule(part: NativeModule): Promise<void> {
  if (part === "better-sqlite3") {
    const { default: Sqlite } = await import("better-sqlite3");
    new Sqlite(":memory:").close();
    return;
  }
  const { sharp } = await import("../imaging/sharp-config.ts");
  await sharp({ create: { width: 1, height: 1, channels: 3, background: "#fff" } })
    .png()
    .toBuffer();
}

/** Whether a process owns the data directory. Loads the database library to find out. */
export async function isDataDirectoryInUse(directory: string): Promise<boolean> {
  const { isDataDirectoryLocked } = await import("../storage/data-lock.ts");
  return isDataDirectoryLocked(directory);
}
