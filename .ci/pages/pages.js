// A slider below each table of moments shows one of them as words, dark where the number is high; links open folds.
"use strict";

function farthest(moments) { // which list of numbers is farthest from the first one; of equals the last
  const away = moments.map((moment) => moment.reduce((sum, shade, i) => sum + Math.abs(shade - moments[0][i]), 0));
  return away.lastIndexOf(Math.max(...away));
}

function slide(table) {
  const moments = [], shade = (cell) => +cell.style.getPropertyValue("--v");
  const cells = [...table.querySelectorAll("[data-at]")]; // of each moment: its name, shades and numbers
  for (const cell of cells) (moments[cell.dataset.at] ??= []).push(cell);
  if (!cells.length) return;
  const input = document.createElement("input"), output = document.createElement("output");
  const value = farthest(moments.map((moment) => moment.map(shade)));
  Object.assign(input, { type: "range", min: 0, max: moments.length - 1, value });
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

if (typeof document !== "undefined") {
  document.querySelectorAll(".learn table").forEach(slide);
  addEventListener("hashchange", open);
  open();
}
