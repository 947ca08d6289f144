// What views are given: the model, its run, and what they may ask for.

export const page = {
  info: null, // of the model: architecture, facts, words
  run: null, // of the state: tokens, values, parameters, loss, next
  hasChanges: false,
  redraw: () => {}, // draw the view again
  reload: () => {}, // ask for the models at hand again
  labelsFor, // how the rows and columns of a tensor are called
};

// The words at the rows and columns of a tensor: tokens where an axis is one of positions.
function labelsFor(tensor) {
  const ofSource = tensor.name.startsWith("encoder.") || tensor.name.startsWith("source");
  const names = (list) => list?.map((token) => token.label);
  const own = names(ofSource ? page.run.source : page.run.tokens);
  const read = tensor.name.includes("cross_attention") ? names(page.run.source) : own;
  const [rowAxis, columnAxis] = tensor.axes.slice(-2);
  const fits = (list, size) => (list && list.length === size ? list : undefined);
  return {
    rowLabels: rowAxis === "position" ? fits(own, tensor.shape.at(-2)) : undefined,
    columnLabels: columnAxis === "key" ? fits(read, tensor.shape.at(-1)) : undefined,
  };
}
