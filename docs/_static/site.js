// The theme's arrows in the side bar have no name, which readers of screens need.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("nav summary")) {
    arrow.setAttribute("aria-label", "Show or hide the pages below");
  }
  // Tables that an example shows: the keyboard must reach what scrolls, and no head may be empty.
  for (const box of document.querySelectorAll(".output_subarea")) {
    box.tabIndex = 0;
  }
  for (const head of document.querySelectorAll(".output_subarea th:empty")) {
    head.replaceWith(document.createElement("td"));
  }
});
