/** Structured logging: first a message, then its facts. Never a key, a prompt or a path of a caller's file. */
export interface Log {
  debug(message: string, facts?: object): void;
  info(message: string, facts?: object): void;
  warn(message: string, facts?: object): void;
  error(message: string, facts?: object): void;
}

export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };
