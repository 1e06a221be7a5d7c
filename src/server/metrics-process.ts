import { Gauge, type Registry } from "prom-client";

/** Facts of the process, under the names that dashboards for Prometheus know. Answers the function that reads them. */
export function gaugeProcess(registry: Registry): () => void {
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers: [registry] });
  const resident = gauge("process_resident_memory_bytes", "Memory of the process");
  const heap = gauge("nodejs_heap_size_used_bytes", "Memory that JavaScript uses");
  const uptime = gauge("process_uptime_seconds", "Time since the process began");
  return () => {
    const { rss, heapUsed } = process.memoryUsage();
    resident.set(rss);
    heap.set(heapUsed);
    uptime.set(process.uptime());
  };
}
