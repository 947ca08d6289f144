// The arrows of the sidebar have no words; readers who cannot see them get some.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    arrow.setAttribute("aria-label", `pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`);
  }
});

// Figures with small letters; others fit a telephone as they are.
addEventListener("load", () => {
  for (const image of document.querySelectorAll("div.cell_output > img")) image.classList.toggle("wide", image.naturalWidth > 760);
});

// A table or figure that is wider than the page scrolls by keyboard too.
const reachWide = () => {
  for (const wide of document.querySelectorAll(".bd-article table, div.cell_output:has(> img.wide)")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  }
};
addEventListener("load", reachWide);
addEventListener("resize", reachWide);

// Live figures are pages of their own: they are told which colors the site has.
document.addEventListener("DOMContentLoaded", () => {
  const site = document.documentElement;
  const figures = [...document.querySelectorAll("iframe.live")];
  const tell = (figure) => figure.contentWindow.postMessage({ theme: site.dataset.theme }, "*");
  for (const figure of figures) figure.addEventListener("load", () => tell(figure));
  new MutationObserver(() => figures.forEach(tell)).observe(site, { attributeFilter: ["data-theme"] });
});
