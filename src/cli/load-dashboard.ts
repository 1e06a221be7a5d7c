/**
 * Loads the live view. Its library looks once, while it is loaded, whether it is being developed: then it checks
 * itself at every step, which costs most of its speed.
 */
export async function loadDashboard(): Promise<typeof import("../dashboard/show.tsx")> {
  process.env.NODE_ENV ??= "production";
  return import("../dashboard/show.tsx");
}
