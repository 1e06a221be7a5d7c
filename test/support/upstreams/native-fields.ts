/** The fields that a message of the vendor's API has: `true` for any value, else the fields of the message in it. */
export interface Fields {
  [name: string]: true | Fields;
}

const content: Fields = {
  role: true,
  parts: {
    ...{ text: true, thought: true, thoughtSignature: true },
    inlineData: { mimeType: true, data: true },
    fileData: { mimeType: true, fileUri: true },
  },
};

export const MESSAGE_FIELDS: Record<string, Fields> = {
  GenerateContentRequest: {
    contents: content,
    systemInstruction: content,
    generationConfig: {
      ...{
        responseModalities: true,
        responseMimeType: true,
        seed: true,
        temperature: true,
        topP: true,
        topK: true,
      },
      ...{ candidateCount: true, maxOutputTokens: true, stopSequences: true, thinkingConfig: true },
      imageConfig: { aspectRatio: true, imageSize: true },
    },
    ...{
      safetySettings: true,
      tools: true,
      toolConfig: true,
      cachedContent: true,
      serviceTier: true,
      model: true,
    },
  },
};

export class UnknownField extends Error {
  readonly path: string;

  constructor(path: string, message: string) {
    super(message);
    this.path = path;
  }
}

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** The value of a field under its name in camel or snake case. */
export function fieldOf(message: unknown, name: string): unknown {
  if (typeof message !== "object" || message === null) return undefined;
  const fields = message as Record<string, unknown>;
  return fields[name] ?? fields[snake(name)];
}

/** Throws `UnknownField`, with the vendor's words, for a field that the message does not have. */
export function hasShape(message: unknown, fields: Fields, path: string): void {
  if (Array.isArray(message)) {
    for (const [at, element] of message.entries()) hasShape(element, fields, `${path}[${at}]`);
    return;
  }
  if (typeof message !== "object" || message === null)
    throw new UnknownField(path, `Invalid value at '${path}' (type.googleapis.com/google.protobuf.Struct).`);
  for (const [name, value] of Object.entries(message)) {
    const known = Object.keys(fields).find((field) => field === name || snake(field) === name);
    if (known === undefined) {
      const where = path === "" ? "" : ` at '${path}'`;
      throw new UnknownField(
        path,
        `Invalid JSON payload received. Unknown name "${name}"${where}: Cannot find field.`,
      );
    }
    const inner = fields[known];
    if (inner !== true && inner !== undefined && value !== null)
      hasShape(value, inner, path === "" ? snake(known) : `${path}.${snake(known)}`);
  }
}
