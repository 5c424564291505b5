# shellcheck shell=sh
# Sourced by the scripts here: where things lie, and how progress and failure are said.
root="$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)"
state="${SUB100_CONTAINER_STATE:-${XDG_CACHE_HOME:-$HOME/.cache}/sub100/containers}"
log="$state/log.txt"

say() {
    echo "[containers] $*"
}

fail() {
    echo "[containers] error: $*" >&2
    exit 1
}

# What a step prints goes to the log; if it fails, the log's end is shown. Usage: quietly SECONDS COMMAND...
quietly() {
    limit="$1"
    shift
    echo "\$ $*" >>"$log"
    if ! timeout --foreground --kill-after=10 "$limit" "$@" >>"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        fail "failed, or took over $limit s: $* (all of it: $log)"
    fi
}

# The pinned tools (linters, podman-compose) in an environment of their own, made once per lock.
make_tools() {
    mkdir -p "$state"
    tools="$state/tools-$(sha256sum "$root/infra/containers/tools.txt" | cut -c 1-12)"
    if [ ! -e "$tools/ready" ]; then
        say "tools -> $tools"
        rm -rf "$tools"
        quietly 120 python3 -m venv "$tools"
        quietly 600 "$tools/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps \
            --require-hashes -r "$root/infra/containers/tools.txt"
        touch "$tools/ready"
    fi
}
