"""What a lesson recorded while its network learned, as a plain table; standard library only."""

import re
from html import escape


def width(lines: list[list[str]]) -> int:
    """Letters in a line of a table: of each column, the longest cell."""
    return sum(
        max(2, *(len(re.sub("<[^>]*>", "", cell)) for cell in column))
        for column in zip(*lines, strict=True)
    )


def shaded(name: str, value: float, most: float) -> str:
    """Attributes of a cell that is dark where its value is the largest one."""
    share = f"{value / most:.2f}"
    return (
        f' style="--v:{share};background:rgba(10,88,176,{share})" title="{escape(name)}: {value:g}"'
    )


def heat(rows, columns, values, title: str, caption="", beside=None, most: float = 0, **_) -> str:
    """A table of numbers, darkest at `most` or its largest, and what `beside` has of each column
    (name -> numbers).

    It stands upright or on its side, as it is narrower. With `beside`, all cells of a column have
    its number, data-at.
    """
    at, most = (
        [f' data-at="{j}"' if beside else "" for j in range(len(columns))],
        most or max(map(max, values)) or 1,
    )
    lines = [
        [
            "<th></th>",
            *(f"<th{a}>{escape(str(column))}</th>" for a, column in zip(at, columns, strict=True)),
        ]
    ]
    for row, numbers in zip(map(str, rows), values, strict=True):
        cells = [
            f"<td{a}{shaded(row, number, most)}></td>"
            for a, number in zip(at, numbers, strict=True)
        ]
        lines.append([f"<th>{escape(row)}</th>", *cells])
    for name, given in (beside or {}).items():
        words = [escape(re.sub(r"^0\.", ".", str(word))) for word in given]
        cells = [
            f'<td{a} title="{escape(name)}: {word}">{word}</td>'
            for a, word in zip(at, words, strict=True)
        ]
        lines.append([f"<th>{escape(name)}</th>", *cells])
    turned = [*zip(*lines, strict=True)]
    lines = turned if width(turned) < width(lines) else lines
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    table = f'<div class="scroll"><table class="heat">{body}</table></div>'
    return f"<figure><b>{escape(title)}</b>{table}{words}</figure>"
