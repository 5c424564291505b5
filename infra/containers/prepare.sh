#!/bin/sh
# prepare.sh [DIRECTORY]: the secrets that docker-compose.yml mounts, and the demo key, made once (python3 >= 3.11).
set -eu
root="$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)"
PYTHONPATH="$root/infra/local" exec python3 "$root/infra/containers/secret_files.py" "${1:-$root/run/containers}"
