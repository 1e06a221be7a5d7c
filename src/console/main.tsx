import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/lists.css";
import "./styles/gallery.css";
import "./styles/large-view.css";
import "./styles/forms.css";
import { createRoot } from "react-dom/client";
import { signIn } from "./api/request.ts";
import { App } from "./app.tsx";
import { takeDrops } from "./parts/drop-area.tsx";

const root = createRoot(document.getElementById("root") as HTMLElement);

/**
 * Signs in with the one-time code of a link, and shows the page. The code is taken out of the address at once, so that no
 * history keeps it.
 */
async function start(): Promise<void> {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(null, "", location.pathname + location.search);
  const signedIn = code === undefined ? Promise.resolve() : signIn(code);
  const problem = await signedIn.then(
    () => null,
    (error: Error) => error,
  );
  root.render(<App signInProblem={problem} />);
}

takeDrops();

// Before the pages: none of them takes the code for a place.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) void start();
});
void start();
