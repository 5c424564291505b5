"""How closed lists are written down: words apart by spaces, tables with a row a line."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def table(rows: str) -> dict[str, str]:
    """``a = b`` on each line: ``a`` is written ``b``; several ``a`` apart by commas."""
    found: dict[str, str] = {}
    for row in rows.strip().splitlines():
        left, _, right = row.partition("=")
        for word in left.split(","):
            found[word.strip()] = right.strip()
    return found
