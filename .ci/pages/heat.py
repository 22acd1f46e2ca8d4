"""What a lesson recorded while its network learned, as a plain table; standard library only."""

import html


def heat(
    rows: list[str], columns: list[str], values: list[list[float]], title: str, caption="", beside=None, **_
) -> str:
    """A table of numbers from 0 to 1, shaded by them; below it what `beside` has of each column (name -> numbers)."""

    def cells(numbers: list[float], of: str) -> str:
        shown = (f'<td style="--v:{v:.2f};background:rgba(10,88,176,{v:.2f})" title="{v:g}"></td>' for v in numbers)
        return f"<tr><th>{html.escape(of)}</th>{''.join(shown)}</tr>"

    body = "".join(cells(numbers, str(row)) for row, numbers in zip(rows, values, strict=True))
    for name, numbers in (beside or {}).items():
        given = [html.escape(str(number)) for number in numbers]
        plain_cells = "".join(f"<td>{word if len(word) < 7 else f'<span>{word}</span>'}</td>" for word in given)
        body += f"<tr><th>{html.escape(name)}</th>{plain_cells}</tr>"
    head = "".join(f'<th scope="col"><span>{html.escape(str(column))}</span></th>' for column in columns)
    table = f'<table class="heat"><tr><th></th>{head}</tr>{body}</table>'
    words = f"<figcaption>{html.escape(caption)}</figcaption>"
    return f'<figure><b>{html.escape(title)}</b><div class="scroll">{table}</div>{words}</figure>'
