import { createReadStream } from "node:fs";

/** An object `{ stream: PATH }` in a call stands for the file. */
const withStreams = (_, value) =>
  typeof value?.stream === "string" ? createReadStream(value.stream) : value;

/** Opens a client of the library. Calls and their answers are JSON; a response is answered with its text. */
export async function openClient(library, options) {
  const module = await import(library);
  const client = await clientOf(module, options);
  return (method, args) => call(module, client, method, JSON.parse(JSON.stringify(args), withStreams));
}

/** The AI SDK has functions in place of a client: the model of a call is that of the provider. */
async function clientOf(module, options) {
  const create = Object.entries(module).find(([name]) => /^create(OpenAI|Google)/.test(name))?.[1];
  if (module.GoogleGenerativeAI) return deprecatedClient(module.GoogleGenerativeAI, options);
  if (module.GoogleGenAI) return currentClient(new module.GoogleGenAI(options));
  if (module.OpenAI) return new module.OpenAI(options);
  const ai = await import("ai");
  const { generateImage } = ai;
  const provider = create(options);
  return {
    batches: {
      start: (requests) => ai.experimental_startBatch({ provider, requests }),
      status: (batch) => ai.experimental_getBatchStatus({ provider, batch }),
      list: (page) => ai.experimental_listBatches({ provider, ...page }),
      cancel: (batch) => ai.experimental_cancelBatch({ provider, batch }),
      async *results(batch) {
        for await (const { images = [], ...result } of ai.experimental_getBatchResults({ provider, batch }))
          yield { ...result, images: images.map(({ base64, mediaType }) => ({ base64, mediaType })) };
      },
    },
    generateImage: async ({ model, ...wanted }) => {
      const { images } = await generateImage({
        ...wanted,
        model: (provider.imageModel ?? provider.image)(model),
      });
      return images.map(({ base64, mediaType }) => ({ base64, mediaType }));
    },
  };
}

/** `chat.send` and `chat.stream` write to the one chat of the client, which `chat.history` tells. */
function currentClient(client) {
  let chat;
  const open = (model) => {
    chat ??= client.chats.create({ model });
    return chat;
  };
  client.chat = {
    send: ({ model, message }) => open(model).sendMessage({ message }),
    stream: ({ model, message }) => open(model).sendMessageStream({ message }),
    history: () => chat.getHistory(true),
  };
  return client;
}

function deprecatedClient(GoogleGenerativeAI, { apiKey, httpOptions }) {
  const client = new GoogleGenerativeAI(apiKey);
  let chat;
  const open = (model) => {
    chat ??= client.getGenerativeModel({ model }, httpOptions).startChat();
    return chat;
  };
  return {
    chat: {
      send: async ({ model, message }) => (await open(model).sendMessage(message)).response,
      stream: async ({ model, message }) => (await open(model).sendMessageStream(message)).stream,
      history: () => chat.getHistory(),
    },
  };
}

/** Lists and streams are read to their end. */
async function call(module, client, method, args) {
  const path = method.split(".");
  const name = path.pop();
  const target = path.reduce((value, part) => value[part], client);
  const values = [];
  try {
    const result = await target[name](...args);
    if (result instanceof Response) return { value: await result.text() };
    if (result?.[Symbol.asyncIterator] === undefined) return { value: result };
    for await (const value of result) values.push(value);
    return { value: values };
  } catch (error) {
    const { name, status = error.statusCode, message, requestID, code, type } = error;
    const classes = Object.keys(module).filter(
      (key) => module[key]?.prototype !== undefined && error instanceof module[key],
    );
    return { error: { name, classes, status, message, requestID, code, type, before: values } };
  }
}
