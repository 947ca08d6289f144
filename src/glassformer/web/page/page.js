// What views are given: the model, its run, and what they may ask for.

export const page = {
  /** @type {Offer[]} */
  offers: [], // the models at hand: {key, title, kind}
  info: null, // of the model: architecture, facts, words
  run: null, // of the state: tokens, values, parameters, loss, next
  hasChanges: false,
  whats: undefined, // in a file, the kinds of numbers that it has of every tensor
  redraw: () => {}, // draw the view again
  reload: () => {}, // ask for the models at hand again
  labelsFor, // how the rows and columns of a tensor are called
};

// The words at the rows and columns of a tensor: tokens where an axis is one of positions. The server says
// whose.
/** @param {Tensor} tensor */
function labelsFor(tensor) {
  const words = (part, size) => {
    const list = part && page.run[part];
    return list && list.length === size ? list.map((token) => token.label) : undefined;
  };
  return {
    rowLabels: words(tensor.down, tensor.shape.at(-2)),
    columnLabels: words(tensor.across, tensor.shape.at(-1)),
  };
}
