import { type FormEvent, useEffect, useRef, useState } from "react";
import { hasSessionEnded, signIn } from "../api/request.ts";
import { ErrorNote } from "../parts/notes.tsx";

/** Asks for a key. `problem` is why a link did not sign in. */
export function SignInPage({ problem }: { problem: Error | null }) {
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const key = String(new FormData(form).get("key")).trim();
    setBusy(true);
    setError(null);
    try {
      await signIn(key);
    } catch (thrown) {
      setError(thrown as Error);
      setBusy(false);
      field.current?.focus();
    } finally {
      form.reset();
    }
  };
  return (
    <main className="sign-in">
      <img className="logo" src="./icon.svg" alt="" />
      <h1>imgbatch</h1>
      <p className="quiet">
        On the machine of the service, <code>imgbatch console</code> opens this page signed in. Anywhere else,
        paste an API key.
      </p>
      {hasSessionEnded() && (
        <p className="note warn">The session has ended. A draft that you were writing is kept.</p>
      )}
      <ErrorNote error={error ?? problem} />
      <form onSubmit={submit}>
        <label htmlFor="key">API key</label>
        <input
          ref={field}
          id="key"
          name="key"
          type="password"
          required
          autoComplete="off"
          spellCheck={false}
        />
        <button type="submit" className="button primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
      <p className="quiet small-text">
        The key is exchanged for a session of this tab, and not kept. The session ends after 12 hours, with
        the tab, or when you sign out.
      </p>
    </main>
  );
}
