// A slider below each table of moments shows one of them as words, dark where the number is high; links open folds.
"use strict";

for (const table of document.querySelectorAll(".learn table")) {
  const cells = [...table.querySelectorAll("[data-at]")]; // of each moment: its name, shades and numbers
  if (!cells.length) continue;
  const moments = Object.values(Object.groupBy(cells, (cell) => +cell.dataset.at));
  const shade = (cell) => +cell.style.getPropertyValue("--v");
  const away = (moment) => moment.reduce((sum, cell, i) => sum + Math.abs(shade(cell) - shade(moments[0][i])), 0);
  const farthest = moments.reduce((best, moment, i) => (away(moment) >= away(moments[best]) ? i : best), 0);
  const input = document.createElement("input"), output = document.createElement("output");
  Object.assign(input, { type: "range", min: 0, max: moments.length - 1, value: farthest });
  input.setAttribute("aria-label", "moment of the picture above");
  input.oninput = () => {
    cells.forEach((cell) => cell.classList.toggle("now", cell.dataset.at === input.value));
    const [name, ...rest] = moments[input.value];
    const words = rest.filter((cell) => cell.style.length).map((cell) => {
      const word = document.createElement("span");
      word.textContent = cell.title.split(": ")[0];
      word.style.opacity = 0.2 + 0.8 * shade(cell);
      return word;
    });
    const given = rest.filter((cell) => !cell.style.length).map((cell) => cell.title);
    output.replaceChildren(`${name.textContent}: `, ...words.flatMap((word) => [word, " "]), given.join(", "));
  };
  table.closest(".scroll").after(input, output);
  input.oninput();
}

function open() { // what a link leads to may lie in folded parts
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = place; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  place?.scrollIntoView();
}
addEventListener("hashchange", open);
open();
