/** Loads the live view, which nothing but a terminal needs. */
export async function loadDashboard(): Promise<typeof import("../dashboard/show.tsx")> {
  const { chooseQuickLibraries } = await import("../config.ts");
  chooseQuickLibraries();
  return import("../dashboard/show.tsx");
}
