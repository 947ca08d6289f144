// The arrows of the sidebar have no words; readers who cannot see them get some.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    arrow.setAttribute("aria-label", `pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`);
  }
});
