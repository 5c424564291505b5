#!/bin/sh
# Finds a Python 3.11 ($PYTHON, or the first of the usual names that is one) and hands over to sub100_bootstrap.
for python in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        PYTHONPATH="$(dirname "$0")" exec "$python" -m sub100_bootstrap "$@"
    fi
done
echo "[setup] error: no Python 3.11: install python3.11 and python3-venv, or set PYTHON=/path/to/it" >&2
exit 1
