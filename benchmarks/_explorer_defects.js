// What a reader would call a mistake of the layout, in words: text over text, text that its box cuts, a page that scrolls
// sideways, a figure without a name. Evaluated on a page; returns a list.
() => {
  const found = [];
  const say = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 40));
  const place = (one) => { const called = one.closest("[class],[id]"); return called ? `${called.tagName.toLowerCase()}${called.id ? `#${called.id}` : ""}${called.getAttribute("class") ? `.${called.getAttribute("class").split(" ").join(".")}` : ""}` : one.tagName; };
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) found.push(`the page is ${wide} px wider than the screen`);

  // The part of a box that its ancestors leave in sight; scrolls: whether the rest can be scrolled to.
  const inSight = (one, box) => {
    let { left, right, top, bottom } = box;
    let scrolls = false;
    for (let up = one; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.overflow === "visible") continue;
      if (/auto|scroll/.test(style.overflowX + style.overflowY)) scrolls = true;
      const own = up.getBoundingClientRect();
      [left, right, top, bottom] = [Math.max(left, own.left), Math.min(right, own.right), Math.max(top, own.top), Math.min(bottom, own.bottom)];
    }
    return { left, right, top, bottom, scrolls };
  };

  const layers = new Map(); // what stands fast while the rest is scrolled under it
  const layerOf = (one) => {
    if (one === document.body) return one;
    if (!layers.has(one)) layers.set(one, /fixed|sticky/.test(getComputedStyle(one).position) ? one : layerOf(one.parentElement));
    return layers.get(one);
  };

  // Slanted text does not fill its box.
  const isTurned = (one) => { const { b } = new DOMMatrix(getComputedStyle(one).transform); return Math.abs(b) > 0.01; };

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const own = node.parentElement;
    if (!node.data.trim() || !own.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || own.closest("option, script, noscript, .skip, title, annotation, datalist")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 2 || box.height < 2) continue;
      const seen = inSight(own, box);
      const style = getComputedStyle(own);
      const isAway = seen.right - seen.left < 1 || seen.bottom - seen.top < 1;
      if (!seen.scrolls && (box.right - seen.right > 2 || seen.left - box.left > 2 || isAway) && !own.closest("[title]")) found.push(`cut: ${say(node.data)} in ${place(own)}`);
      if (!seen.scrolls && (box.right > innerWidth + 1 || box.left < -1)) found.push(`off the page: ${say(node.data)} in ${place(own)}`);
      if (!isAway && style.opacity !== "0" && !isTurned(own)) texts.push({ node, own, layer: layerOf(own), box: seen, size: box });
    }
  }
  for (const box of document.querySelectorAll("input, select, textarea")) {
    if (box.checkVisibility() && box.type !== "range" && box.scrollWidth > box.clientWidth + 2 && !box.readOnly) found.push(`cut: ${say(box.value)} in ${place(box)} (${box.scrollWidth} > ${box.clientWidth})`);
  }
  texts.sort((a, b) => a.box.top - b.box.top);
  const pairs = new Set();
  texts.forEach((one, n) => {
    for (const other of texts.slice(n + 1)) {
      if (other.box.top > one.box.bottom) break;
      if (one.node === other.node || one.layer !== other.layer) continue; // what stands fast is scrolled under
      const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      const least = Math.min(one.size.height, other.size.height);
      if (across > 2 && down > 0.35 * least) pairs.add(`overlap: ${say(one.node.data)} and ${say(other.node.data)} in ${place(one.own)}`);
    }
  });
  found.push(...pairs);
  for (const figure of document.querySelectorAll("canvas, svg, progress, meter")) {
    const named = figure.closest("[aria-hidden=true]") || figure.getAttribute("aria-label") || figure.getAttribute("aria-labelledby") || figure.querySelector("title") || figure.labels?.length || figure.closest("figure")?.innerText.trim();
    if (figure.checkVisibility() && !named) found.push(`a figure without a name: ${place(figure)}`);
  }
  const counts = new Map();
  for (const one of found) counts.set(one, (counts.get(one) ?? 0) + 1);
  return [...counts].map(([one, count]) => (count > 1 ? `${one} (${count} times)` : one));
}
