import type { Fact } from "../dashboard/events.ts";
import type { TroubleRow } from "../dashboard/model.ts";
import type { ProviderHealth } from "../domain/health/provider-health.ts";
import { EVERY_MODEL } from "../domain/health/transitions.ts";

export type TroubleSource = Pick<ProviderHealth, "providers" | "blocksOf">;

/** Returns a function that reports the providers that cannot be used now, if they are others than at its last call. */
export function troubleReporter(health: TroubleSource, tell: (fact: Fact) => void): () => void {
  let last = "[]";
  return () => {
    const troubles = health.providers.flatMap((provider) => health.blocksOf(provider)).map(toRow);
    const text = JSON.stringify(troubles);
    if (text !== last) tell({ type: "vitals", vitals: { troubles } });
    last = text;
  };
}

function toRow({
  provider,
  model,
  message,
  untilMs,
}: ReturnType<TroubleSource["blocksOf"]>[number]): TroubleRow {
  return { provider, model: model === EVERY_MODEL ? null : model, message, untilMs };
}
