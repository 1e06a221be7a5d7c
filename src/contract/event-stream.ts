/** A change that the service reports in `GET /v1/events`. */
export interface StreamedEvent {
  /** Empty for a sign of life. */
  name: string;
  /** The batch that it is about. */
  id: string | null;
  /** The ids of the changed items; null for all events but `batch`, and when very many changed. */
  items: string[] | null;
}

/** No line of ours is longer; a longer one is none of ours. */
const MAX_LINE_CHARS = 64 * 1024;

/** Returns the text of an event. JSON has no line breaks, so that no name of a caller can end an event. */
export function eventText(name: string, data: { id?: string; items?: string[] | null }): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Reads the events of a stream that comes in pieces of any size. Ends with the stream, and at a line that is too long. */
export async function* readEventStream(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<StreamedEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  let name = "";
  for await (const piece of bytes) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARS) return;
    for (const line of lines) {
      if (line.startsWith(":")) yield { name: "", id: null, items: null };
      else if (line.startsWith("event: ")) name = line.slice("event: ".length).trim();
      else if (line.startsWith("data: ")) yield { name, ...dataOf(line.slice("data: ".length)) };
    }
  }
}

/** A text that is not ours is an event without facts. */
function dataOf(text: string): Pick<StreamedEvent, "id" | "items"> {
  try {
    const { id, items } = JSON.parse(text) as { id?: unknown; items?: unknown };
    const isId = typeof id === "string" && /^[\w-]+$/.test(id);
    return { id: isId ? id : null, items: Array.isArray(items) ? items.map(String) : null };
  } catch {
    return { id: null, items: null };
  }
}
