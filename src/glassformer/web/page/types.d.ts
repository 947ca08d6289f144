// The types of what modules of the page hand to each other; the type check reads them, no browser does.

/** A view of the page: what draws it stands in main.js, its record comes from views.py. */
type ViewId = keyof typeof import("./main.js").DRAW;
type View = { id: ViewId; title: string; group: "" | "experiments" | "beside"; needsRun: boolean };

type Offer = { key: string; title: string; kind: string };
type Change = { word: string; name: string; where?: Record<string, number>; value?: number; other?: string };
type Target = {
  kind: "loss" | "logit" | "entry";
  token?: number;
  against?: number | null;
  position?: number;
  name?: string;
  index?: number[];
};
type Step = { optimizer: string; lr: number };

/** What decides the numbers of a run; the server is asked with it. */
type RunState = {
  model: string;
  text: string;
  answer: string | null;
  changes: Change[];
  of: Target;
  steps: Step[];
};
/** What the address says: the run, the view that is open, and what each view remembers for itself. */
type PageState = RunState & { view: ViewId; look: Record<string, any> };

/** A value, a parameter or a gradient by its name, as the server lists it. */
type Tensor = {
  name: string;
  shape: number[];
  axes: string[];
  down: "tokens" | "source" | null;
  across: "tokens" | "source" | null;
  op?: string | null;
};
type Token = { id: number; label: string };

// Functions that elements carry for those who find them on the page.
interface HTMLCanvasElement {
  redraw?: () => void;
}
interface HTMLButtonElement {
  load?: () => Promise<void>;
}
interface HTMLElement {
  show?: (step?: string | number) => void;
}
