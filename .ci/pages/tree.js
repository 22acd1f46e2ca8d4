// A discourse tree over a text's clauses and the attention matrices that discourse_tree_attention/matrices.py makes
// of it. A node is {start, end, nucleus, children}: over the clauses start, ..., end - 1; nucleus is true, false
// (Satellite) or null (root); it has no children or two. tests/test_tree.py: both languages give the same.
"use strict";

function nodes(tree) { // children before their parent
  return [...tree.children.flatMap(nodes), tree];
}

function parents(tree) { // Section 4.1
  const main = new Map(), found = [...Array(tree.end).keys()];
  for (const node of nodes(tree)) {
    const [left, right] = node.children;
    main.set(node, left ? main.get(left.nucleus ? left : right) : node.start);
  }
  for (const node of nodes(tree).reverse()) { // from the root down: inner Satellites win
    for (const child of node.children) {
      if (!child.nucleus) found.fill(main.get(node), child.start, child.end);
    }
  }
  return found;
}

function levelSum(tree, nuclearity) { // Sections 4.2 and 4.3
  const size = tree.end, total = Array.from({ length: size }, () => Array(size).fill(0));
  for (const node of nodes(tree)) {
    for (let i = node.start; i < node.end; i++) {
      for (let j = node.start; j < node.end; j++) total[i][j] += nuclearity && node.nucleus ? 2 : 1;
    }
  }
  return total;
}

function normalize(matrix) {
  return matrix.map((row) => row.map((value) => value / row.reduce((a, b) => a + b)));
}

function matrices(tree) { // N x N each; row i says what clause i pays attention to
  const dTree = parents(tree).map((parent) => [...Array(tree.end)].map((_, j) => (j === parent ? 1 : 0)));
  return {
    "D-Tree": dTree,
    "C-Tree": normalize(levelSum(tree, false)),
    "C-Tree w/Nuc": normalize(levelSum(tree, true)),
  };
}

function exchange(tree, node) { // the tree with the next roles for the pair below `node`: N S, S N, N N, N S, ...
  const roles = (left, right) => (!right ? [false, true] : left ? [true, false] : [true, true]);
  const children = tree.children.map((child) => exchange(child, node));
  if (tree === node) {
    const next = roles(tree.children[0].nucleus, tree.children[1].nucleus);
    children.forEach((child, i) => (child.nucleus = next[i]));
  }
  return { ...tree, children };
}

// The picture: what belongs to clauses a, ..., b - 1 has data-start=a and data-end=b

const STYLE = `.tree svg { width: 100%; min-width: 620px; max-width: 800px; height: auto; font: 13px sans-serif; }
.tree .scroll { overflow-x: auto; } .tree path { fill: none; stroke: currentColor; opacity: 0.35; stroke-width: 1.5; }
.tree path.satellite { stroke-dasharray: 5 4; } .tree path.on { opacity: 1; stroke-width: 3; }
.tree text { fill: currentColor; } .tree text.on { font-weight: bold; } .tree [tabindex] { cursor: pointer; }
.tree table { display: inline-table; margin: 8px 16px 8px 0; border-collapse: collapse; font: 13px sans-serif; }
.tree caption { font-weight: bold; } .tree td, .tree th { width: 30px; height: 24px; padding: 2px; text-align: center; }
.tree tr.on { outline: 2px solid currentColor; } .tree tr.on th { text-decoration: underline; }`;

function escaped(text) {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function place(node, tree) { // x, y of a node in the picture: the more clauses it holds, the farther left
  const share = Math.log2(node.end - node.start) / Math.log2(Math.max(tree.end, 2));
  return [200 - 190 * share, 15 * (node.start + node.end)];
}

function drawTree(tree, texts) {
  const parts = [];
  nodes(tree).forEach((node, number) => {
    const [x, y] = place(node, tree), range = `data-start="${node.start}" data-end="${node.end}"`;
    for (const child of node.children) {
      const [a, b] = place(child, tree), letter = child.nucleus ? "N" : "S";
      const kind = child.nucleus ? "nucleus" : "satellite";
      const own = `data-start="${child.start}" data-end="${child.end}"`;
      parts.push(`<path class="${kind}" ${own} d="M ${x} ${y} V ${b} H ${a}"/>`);
      parts.push(`<text x="${x + 12}" y="${b - 4}">${letter}</text>`);
    }
    if (node.children.length) {
      const label = `exchange Nucleus and Satellite of the pair over clauses ${node.start + 1} to ${node.end}`;
      const circle = `<circle cx="${x}" cy="${y}" r="7" fill="currentColor"/>`;
      parts.push(`<g tabindex="0" role="button" data-node="${number}" aria-label="${label}">${circle}</g>`);
    } else {
      const label = `${node.end}  ${escaped(texts[node.start])}`;
      parts.push(`<text tabindex="0" ${range} data-clause="${node.start}" x="${x + 8}" y="${y + 4}">${label}</text>`);
    }
  });
  return `<div class="scroll"><svg viewBox="0 0 640 ${30 * tree.end}">${parts.join("")}</svg></div>`;
}

function drawMatrix(title, matrix) {
  const numbers = matrix.map((_, i) => `<th scope="col">${i + 1}</th>`).join("");
  const most = Math.max(...matrix.flat());
  const shade = (value) => `background: rgb(40 110 220 / ${((0.7 * value) / most).toFixed(2)})`;
  const cell = (value) => `<td style="${shade(value)}">${value.toFixed(2)}</td>`;
  const open = (i) => `<tr data-start="${i}" data-end="${i + 1}"><th scope="row">${i + 1}</th>`;
  const rows = matrix.map((row, i) => `${open(i)}${row.map(cell).join("")}</tr>`);
  return `<table><caption>${title}</caption><tr><th></th>${numbers}</tr>${rows.join("")}</table>`;
}

function picture(tree, texts) {
  const tables = Object.entries(matrices(tree)).map(([title, matrix]) => drawMatrix(title, matrix));
  const help = "Touch a clause: its row in each matrix and the constituents that hold it are marked. Touch a dot, or "
    + "press Enter on it: its pair exchanges Nucleus (N) and Satellite (S).";
  return `<style>${STYLE}</style><p>${help}</p>${drawTree(tree, texts)}<div class="scroll">${tables.join("")}</div>`;
}

function draw(figure) { // in place of the static tables in `figure`, whose data-tree is {tree, texts} as JSON
  let { tree, texts } = JSON.parse(figure.dataset.tree);
  const mark = (clause) => figure.querySelectorAll("[data-start]").forEach((part) => {
    part.classList.toggle("on", part.dataset.start <= clause && clause < part.dataset.end);
  });
  const show = () => {
    figure.innerHTML = picture(tree, texts);
    mark(0);
  };
  const touched = (event) => {
    const button = event.target.closest("[data-node]"), clause = event.target.closest("tr[data-start], [data-clause]");
    const isKey = event.type === "keydown";
    if (button && (isKey ? event.key === "Enter" || event.key === " " : event.type === "click")) {
      event.preventDefault();
      tree = exchange(tree, nodes(tree)[button.dataset.node]);
      show();
      figure.querySelector(`[data-node="${button.dataset.node}"]`).focus();
    } else if (clause && !isKey) mark(Number(clause.dataset.start));
  };
  for (const type of ["click", "keydown", "pointerover", "focusin"]) figure.addEventListener(type, touched);
  figure.classList.add("tree");
  show();
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-tree]").forEach(draw));
}
