// The arrows of the sidebar have no words; readers who cannot see them get some.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    arrow.setAttribute("aria-label", `pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`);
  }
});

// A table that is wider than the page scrolls by keyboard too.
const reachTables = () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
};
addEventListener("load", reachTables);
addEventListener("resize", reachTables);
