"""What a lesson recorded while its network learned, as a plain table; standard library only."""

import re
from html import escape


def width(lines: list[list[str]]) -> int:
    """Letters in a line of a table: of each column, the longest cell."""
    letters = [[len(re.sub("<[^>]*>", "", cell)) for cell in line] for line in lines]
    return sum(max(2, *column) for column in zip(*letters, strict=True))


def shaded(name: str, value: float, most: float) -> str:
    """Attributes of a cell that is dark where its value is the largest one."""
    share = f"{value / most:.2f}"
    return (
        f' style="--v:{share};background:rgba(10,88,176,{share})" title="{escape(name)}: {value:g}"'
    )


def heat(rows, columns, values, title: str, caption="", beside=None, most: float = 0, **_) -> str:
    """A table of numbers, darkest at `most` or its largest; below it `beside`: name -> numbers.

    It stands upright or on its side, as it is narrower. With `beside`, all cells of a column have
    its number, data-at.
    """
    most = most or max(map(max, values)) or 1
    at = [f' data-at="{number}"' if beside else "" for number in range(len(columns))]
    lines = [["<th></th>"]]
    for place, column in zip(at, columns, strict=True):
        lines[0].append(f"<th{place}>{escape(str(column))}</th>")
    for row, numbers in zip(map(str, rows), values, strict=True):
        cells = [f"<th>{escape(row)}</th>"]
        for place, number in zip(at, numbers, strict=True):
            cells.append(f"<td{place}{shaded(row, number, most)}></td>")
        lines.append(cells)
    for name, given in (beside or {}).items():
        cells = [f"<th>{escape(name)}</th>"]
        for place, number in zip(at, given, strict=True):
            word = escape(re.sub(r"^0\.", ".", str(number)))
            cells.append(f'<td{place} title="{escape(name)}: {word}">{word}</td>')
        lines.append(cells)
    on_its_side = [*zip(*lines, strict=True)]
    if width(on_its_side) < width(lines):
        lines = on_its_side
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    table = f'<div class="scroll"><table class="heat">{body}</table></div>'
    return f"<figure><b>{escape(title)}</b>{table}{words}</figure>"
