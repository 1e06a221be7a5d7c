import { createRoot } from "react-dom/client";
import { signIn } from "./api/sign-in.ts";
import { App } from "./app.tsx";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/lists.css";
import "./styles/gallery.css";
import "./styles/large-view.css";
import "./styles/forms.css";

/** The one-time code of a sign-in link. It is taken out of the address at once, so that no history keeps it. */
const code = /^#code=(.+)$/.exec(location.hash)?.[1];
if (code !== undefined) history.replaceState(null, "", location.pathname + location.search);

const root = createRoot(document.getElementById("root") as HTMLElement);
const problem: Error | null = code === undefined ? null : await signIn(code).then(() => null, (error) => error);
root.render(<App signInProblem={problem} />);
