import { LOCAL_STORAGE } from "../config/storage-places.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { type OpenStorage, openStorage } from "./storage/open-storage.ts";

/** Opens (or makes) the SQLite database and the files of a data directory, without owning it. See `openStorage`. */
export function openDataDirectory(
  directory: string,
  clock: Clock = systemClock,
  onBroken?: (cause: Error) => void,
): Promise<OpenStorage> {
  return openStorage(LOCAL_STORAGE, { directory, clock, onBroken });
}
