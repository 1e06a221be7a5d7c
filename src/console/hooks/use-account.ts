import { createContext, useContext } from "react";
import type { AccountObject } from "../../contract/console-api/account.ts";
import type { Data } from "./use-data.ts";

export const AccountContext = createContext<Data<AccountObject> | null>(null);

/** The account of the key, kept up to date; null before it is known. */
export function useAccount(): AccountObject | null {
  return useContext(AccountContext)?.value ?? null;
}
