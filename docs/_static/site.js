// The theme's arrows in the side bar have no name, which readers of screens need.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("nav summary")) {
    arrow.setAttribute("aria-label", "Show or hide the pages below");
  }
});
