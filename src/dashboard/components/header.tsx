import { Text } from "ink";
import { unnamed } from "../../contract/waiting.ts";
import { clockTime, formatDuration } from "../../kernel/durations.ts";
import { FREE_DRAWINGS, formatUsd } from "../../kernel/money.ts";
import { escapeControls, formatSize } from "../../kernel/text.ts";
import type { TroubleRow } from "../model.ts";
import type { DashboardState } from "../state/state.ts";
import { ACCENT } from "../theme.ts";
import { Line } from "./line.tsx";

/** The service's address and state in two lines, and the providers that cannot be used in a third. The most important facts stand on the left, because the end is cut off. */
export function Header({ state }: { state: DashboardState }) {
  const { service, vitals, nowMs } = state;
  const { balanceMicroUsd, heldMicroUsd, isPlay, freeDiskBytes } = vitals;
  const held = heldMicroUsd ? `held ${formatUsd(heldMicroUsd, "sum")}` : null;
  const first = [
    service?.providers,
    service?.startedAtMs != null ? `up ${formatDuration(nowMs - service.startedAtMs)}` : null,
  ];
  const second = [
    ...(isPlay
      ? [FREE_DRAWINGS]
      : [balanceMicroUsd === null ? null : `balance ${formatUsd(balanceMicroUsd, "sum")}`, held]),
    freeDiskBytes === null ? null : `disk ${formatSize(freeDiskBytes)} free`,
    service?.dataDirectory,
  ];
  return (
    <>
      <Line>
        <Text bold color={ACCENT}>
          imgbatch
        </Text>
        {"  "}
        <Text bold>{service?.url ?? "starting…"}</Text>
        <Text dimColor>{join(first)}</Text>
      </Line>
      <Line>
        <Text dimColor>{join(second).slice(3)}</Text>
      </Line>
      {vitals.troubles.length > 0 && (
        <Line>
          <Text color={vitals.troubles.some(({ untilMs }) => untilMs === null) ? "red" : "yellow"}>
            {`! ${vitals.troubles.map(troubleText).join(" · ")}`}
          </Text>
        </Line>
      )}
    </>
  );
}

/** Such as `google (gemini-3-pro-image) cooling until 14:32: Too many requests.` */
function troubleText({ provider, model, message, untilMs }: TroubleRow): string {
  const who = model === null ? provider : `${provider} (${model})`;
  const state = untilMs === null ? "disabled" : `cooling until ${clockTime(untilMs).slice(0, 5)}`;
  return escapeControls(`${who} ${state}: ${unnamed(provider, message)}`);
}

function join(parts: readonly (string | null | undefined)[]): string {
  return parts
    .filter((part) => part != null)
    .map((part) => ` · ${part}`)
    .join("");
}
