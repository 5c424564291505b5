#!/bin/sh
# Runs its arguments with a Python 3.11: $PYTHON, or the first of the usual names that is one.
for python in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        exec "$python" "$@"
    fi
done
echo "Python 3.11 is needed and was not found: install python3.11 and python3-venv, or set PYTHON=/path/to/it" >&2
exit 1
