/** The files that GitHub Actions reads after a step; null when this is no such step. It imports nothing: it is asked first. */
export function readActionsEnvironment(
  env: NodeJS.ProcessEnv = process.env,
): { summary: string | undefined; output: string | undefined } | null {
  if (env.GITHUB_ACTIONS !== "true") return null;
  return { summary: env.GITHUB_STEP_SUMMARY || undefined, output: env.GITHUB_OUTPUT || undefined };
}
