import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type { RequestPart } from "../../../contract/native-api.ts";
import { base64Of } from "../../api/base64.ts";
import { generateImage } from "../../api/realtime.ts";
import type { ReferenceFile } from "../../api/reference-file.ts";
import { randomId } from "../../api/sign-in.ts";

/** A request for one image. */
export interface ShotRequest {
  model: string;
  prompt: string;
  references: readonly ReferenceFile[];
  /** Null: the ratio of the first reference, else 1:1. */
  ratio: string | null;
  size: string;
  /** US dollars. */
  cost: number;
  /** The images of the model cost real money. */
  isPaid: boolean;
  /** The images of the model are drawn, and cost no real money. */
  isPlay: boolean;
}

/** An image that was asked for in this tab. */
export interface Shot {
  id: string;
  request: ShotRequest;
  /** Null while it is made, and after a failure. */
  image: ReferenceFile | null;
  error: Error | null;
}

interface Shots {
  /** The newest first. */
  shots: readonly Shot[];
  make: (request: ShotRequest) => void;
  /** Asks again for an image whose request failed, without paying twice for it. */
  repeat: (shot: Shot) => void;
}

const ShotsContext = createContext<Shots>({ shots: [], make: () => {}, repeat: () => {} });

/** The images that this tab has asked for, and the ways to ask. */
export function useShots(): Shots {
  return useContext(ShotsContext);
}

/** Keeps the images of the tab while its pages change. They go with the session. */
export function ShotsProvider({ children }: { children: ReactNode }) {
  const [shots, setShots] = useState<readonly Shot[]>([]);
  const stop = useRef(new AbortController());
  const urls = useRef<string[]>([]);
  useEffect(() => {
    stop.current = new AbortController();
    return () => {
      stop.current.abort();
      for (const url of urls.current.splice(0)) URL.revokeObjectURL(url);
    };
  }, []);

  const run = useCallback(async ({ id, request }: Shot) => {
    const end = (outcome: Partial<Shot>) =>
      setShots((old) => old.map((shot) => (shot.id === id ? { ...shot, ...outcome } : shot)));
    end({ error: null });
    try {
      const { size, ratio, isPaid, cost, model } = request;
      const consent = { idempotencyKey: id, maxCost: isPaid ? cost : null };
      const body = {
        contents: [{ role: "user" as const, parts: await partsOf(request) }],
        generationConfig: {
          responseModalities: ["TEXT" as const, "IMAGE" as const],
          imageConfig: { imageSize: size as "1K", ...(ratio === null ? {} : { aspectRatio: ratio }) },
        },
      };
      const blob = await generateImage(model, body, consent, stop.current.signal);
      const url = URL.createObjectURL(blob);
      urls.current.push(url);
      const mimeType = blob.type as ReferenceFile["mimeType"];
      end({ image: { name: `${id}.${mimeType.split("/")[1]}`, blob, mimeType, pixels: 0, url } });
    } catch (error) {
      end({ error: error as Error });
    }
  }, []);

  const value = useMemo(
    () => ({
      shots,
      make: (request: ShotRequest) => {
        const shot = { id: `console-${randomId()}`, request, image: null, error: null };
        setShots((old) => [shot, ...old]);
        void run(shot);
      },
      repeat: run,
    }),
    [shots, run],
  );
  return <ShotsContext value={value}>{children}</ShotsContext>;
}

async function partsOf({ prompt, references }: ShotRequest): Promise<RequestPart[]> {
  const images = references.map(async ({ blob, mimeType }) => ({
    inlineData: { mimeType, data: await base64Of(blob) },
  }));
  return [{ text: prompt }, ...(await Promise.all(images))];
}
