import { Text } from "ink";
import { formatDuration } from "../../kernel/durations.ts";
import { formatSize } from "../../kernel/text.ts";
import type { DashboardState } from "../state/state.ts";
import { dollars } from "../text/format.ts";
import { ACCENT } from "../theme.ts";
import { Line } from "./line.tsx";

/** Two lines with the service's address and state. The most important facts stand on the left, because the end is cut off. */
export function Header({ state }: { state: DashboardState }) {
  const { service, vitals, nowMs } = state;
  const { balanceMicroUsd, heldMicroUsd, freeDiskBytes } = vitals;
  const first = [
    service?.providers,
    service?.startedAtMs != null ? `up ${formatDuration(nowMs - service.startedAtMs)}` : null,
  ];
  const second = [
    balanceMicroUsd === null ? null : `balance ${dollars(balanceMicroUsd)}`,
    heldMicroUsd ? `held ${dollars(heldMicroUsd)}` : null,
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
    </>
  );
}

function join(parts: readonly (string | null | undefined)[]): string {
  return parts
    .filter((part) => part != null)
    .map((part) => ` · ${part}`)
    .join("");
}
