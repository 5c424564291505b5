"""``pick.py LOCK NAME...``: the lock's own lines, hashes included, of these packages."""

import sys
from pathlib import Path

lines = Path(sys.argv[1]).read_text().splitlines()
starts = [index for index, line in enumerate(lines) if "==" in line and not line.startswith(" ")]
entries = {
    lines[start].partition("==")[0]: lines[start:end]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
}
for name in sys.argv[2:]:
    print("\n".join(entries[name]))
