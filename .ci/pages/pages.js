// A slider below each table of moments shows one column as words, dark where the number is high; links open folds.
"use strict";

for (const table of document.querySelectorAll(".learn table")) {
  const lines = [...table.rows], moments = lines[0].cells.length - 1;
  if (lines.every((line) => line.cells[1].title || !line.rowIndex)) continue; // no numbers by moment
  const input = document.createElement("input"), output = document.createElement("output");
  Object.assign(input, { type: "range", min: 1, max: moments, value: Math.ceil(moments / 2) });
  input.setAttribute("aria-label", "moment of the picture above");
  input.oninput = () => {
    lines.forEach((line) => [...line.cells].forEach((cell, i) => cell.classList.toggle("now", i === +input.value)));
    const shaded = lines.slice(1).filter((line) => line.cells[1].style.length);
    const words = shaded.map((line) => {
      const word = document.createElement("span");
      word.textContent = line.cells[0].textContent;
      word.style.setProperty("opacity", 0.2 + 0.8 * line.cells[input.value].style.getPropertyValue("--v"));
      return word;
    });
    const rest = lines.filter((line, i) => i && !line.cells[1].style.length);
    const said = rest.map((line) => `${line.cells[0].textContent}: ${line.cells[input.value].textContent}`);
    output.replaceChildren(`${lines[0].cells[input.value].textContent}: `, ...words.flatMap((w) => [w, " "]), said.join(", "));
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
