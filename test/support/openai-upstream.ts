import { createServer } from "node:http";
import { listening } from "./listening.ts";
import { PNG } from "./upstream-adapter.ts";

/** An upstream of type `openai`: it refuses with the status and message while there is one, else it makes images. */
export interface FakeUpstream {
  /** The `baseUrl` of its entry. */
  url: string;
  refusal: { status: number; message: string } | null;
  /** It refuses so once it has made this many images. Default: never. */
  refuseAfter: { images: number; status: number; message: string } | null;
  /** It takes each request for an image, and closes the connection without an answer. */
  losesAnswers: boolean;
  /** The picture that it makes, by its number from 1. Default: always the same one. */
  picture: (number: number) => Promise<Buffer>;
  /** The requests that arrived, such as `GET /v1/models`. */
  requests: string[];
}

/** Starts an upstream that works. It ends with the test. */
export async function startFakeUpstream(): Promise<FakeUpstream> {
  const fake: FakeUpstream = {
    url: "",
    refusal: null,
    refuseAfter: null,
    losesAnswers: false,
    picture: async () => PNG,
    requests: [],
  };
  let made = 0;
  const server = createServer((request, response) => {
    request.resume().on("end", async () => {
      fake.requests.push(`${request.method} ${request.url}`);
      if (fake.losesAnswers && request.method === "POST") {
        request.socket.destroy();
        return;
      }
      const { refuseAfter } = fake;
      const refusal =
        fake.refusal ?? (refuseAfter !== null && made >= refuseAfter.images ? refuseAfter : null);
      if (refusal === null && request.method === "POST") made += 1;
      const b64_json = request.method === "GET" ? "" : (await fake.picture(made)).toString("base64");
      const data = request.method === "GET" ? [] : [{ b64_json }];
      const body = refusal ? { error: { message: refusal.message } } : { data };
      response.writeHead(refusal?.status ?? 200, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    });
  });
  fake.url = `${await listening(server)}/v1`;
  return fake;
}
