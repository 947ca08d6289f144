// What the address says of the scene.

import { change, look, state } from "./state.js";

// Change it; a step that Back should return from is pushed.
export const setScene = (parts, push = true) =>
  change({ look: { ...state().look, scene: { ...look("scene"), ...parts } } }, { undoable: false, push });

// It when a head stands there large. kind: encoder, decoder or cross; name:
// of its attention.
export const headInScene = (kind, name, layer, head, shown = "values") => ({
  scene: {
    shown,
    zoom: `${name}.attend.weights`,
    cell: undefined,
    [kind === "cross" ? "decoder" : kind]: {
      open: layer,
      head,
      attention: kind === "cross" ? "cross_attention" : "attention",
    },
  },
});

// Show one station large, or no longer.
export const zoomTo = (name) => setScene({ zoom: look("scene").zoom === name ? null : name });
