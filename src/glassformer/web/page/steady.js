// Drawing a view again without losing one's place: the height, the scroll and the control that had the focus.

let steadyFocus = null;

// Say which control is to have the focus when the view is drawn again; controls go by data-key.
export function holdFocus(key) {
  steadyFocus = key;
}

export function keepSteady(place, ready = []) {
  /** @type {HTMLElement?} */
  const before = document.querySelector(`[data-view="${place.dataset.view}"]`);
  if (!before) return;
  const [height, top] = [before.offsetHeight, scrollY];
  place.style.minHeight = `${height}px`;
  requestAnimationFrame(() => {
    scrollTo(0, top);
    if (steadyFocus)
      [...place.querySelectorAll("[data-key]")]
        .find((one) => one.dataset.key === steadyFocus)
        ?.focus({ preventScroll: true });
  });
  Promise.allSettled(ready).then(() => {
    place.style.minHeight = "";
  });
}
