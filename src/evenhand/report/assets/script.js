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
  // Neighbors may overlap: the click goes to the point whose center is nearest.
  const nearest = (chart, x, y) => {
    let best = null;
    let least = 24;
    for (const point of chart.querySelectorAll(".point")) {
      const box = point.querySelector(".mark").getBoundingClientRect();
      const far = Math.hypot(x - box.left - box.width / 2, y - box.top - box.height / 2);
      if (far < least) [best, least] = [point, far];
    }
    return best;
  };
  for (const chart of new Set(points.map((point) => point.closest("svg")))) {
    chart.addEventListener("click", (event) => {
      // A click without a place (detail 0) comes from a program or an aid, which name the point.
      const point = event.detail > 0
        ? nearest(chart, event.clientX, event.clientY)
        : event.target.closest(".point");
      if (point === null) return;
      select(Number(point.dataset.point), true);
      point.focus({ preventScroll: true });
    });
  }
  for (const point of points) {
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
