"use strict";
(() => {
  const points = [...document.querySelectorAll(".point")];
  const panels = [...document.querySelectorAll("[data-panel]")];
  const back = document.getElementById("step-back");
  const forward = document.getElementById("step-forward");
  const spoken = document.getElementById("spoken");
  const count = panels.length;
  let current = panels.findIndex((panel) => !panel.hidden);

  const select = (index, speak) => {
    current = Math.min(Math.max(index, 0), count - 1);
    for (const point of points) {
      const mine = Number(point.dataset.point) === current;
      point.setAttribute("aria-checked", String(mine));
      point.setAttribute("tabindex", mine ? "0" : "-1");
    }
    panels.forEach((panel, k) => { panel.hidden = k !== current; });
    back.disabled = current === 0;
    forward.disabled = current === count - 1;
    if (speak) spoken.textContent = panels[current].querySelector("h3").textContent;
  };

  const moves = {
    ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity,
  };
  for (const point of points) {
    point.addEventListener("click", () => {
      select(Number(point.dataset.point), true);
      point.focus({ preventScroll: true });
    });
    point.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key in moves) {
        select(Number(point.dataset.point) + moves[event.key], true);
        const chart = point.closest("svg");
        chart.querySelector(`.point[data-point="${current}"]`).focus();
      } else if (event.key === " " || event.key === "Enter") {
        select(Number(point.dataset.point), true);
      } else {
        return;
      }
      event.preventDefault();
    });
  }
  back.addEventListener("click", () => select(current - 1, true));
  forward.addEventListener("click", () => select(current + 1, true));
  document.querySelectorAll(".screen[hidden]").forEach((part) => { part.hidden = false; });
  select(current, false);
})();
