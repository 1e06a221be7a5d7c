/** The parts that are compiled for each system, and whether they can be used on this one. */
export const NATIVE_MODULES = ["better-sqlite3", "sharp"] as const;
export type NativeModule = (typeof NATIVE_MODULES)[number];

/** Uses a native part once. Throws what keeps it from working. */
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

/** Whether a process owns the data directory; the database library is loaded for the question. */
export async function isDataDirectoryInUse(directory: string): Promise<boolean> {
  const { isDataDirectoryLocked } = await import("../storage/probe-lock.ts");
  return isDataDirectoryLocked(directory);
}
