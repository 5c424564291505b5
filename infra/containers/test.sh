#!/bin/sh
# test.sh [--clean]: builds the images, runs docker-compose.yml with the simulated engine in real containers, then the
# integration suite on containers. Runs as root in the control environment ('make container-test'); may be repeated.
# --clean also removes images and settings afterwards; without it the next run builds only what changed.
set -eu
umask 022
# shellcheck source=infra/containers/common.sh
. "$(dirname -- "$0")/common.sh"
# shellcheck source=infra/containers/podman.sh
. "$root/infra/containers/podman.sh"
service_pid=""

compose() {
    timeout --foreground --kill-after=10 "$1" "$tools/bin/podman-compose" -p "$project" -f "$root/docker-compose.yml" "$2" \
        ${3:+"$3"} ${4:+"$4"} >>"$log" 2>&1 </dev/null
}

# Idempotent and bounded; runs however the script ends.
clean_up() {
    status=$?
    trap - EXIT INT TERM
    say "cleaning up"
    [ -z "$service_pid" ] || kill "$service_pid" 2>/dev/null || true
    if [ -n "${CONTAINERS_CONF:-}" ]; then
        compose 120 down --volumes || true
        timeout 60 podman rm --force --all --depend --time 5 >>"$log" 2>&1 || true
        timeout 30 podman network prune --force >>"$log" 2>&1 || true
        if [ "$clean" = yes ]; then
            timeout 120 podman system reset --force >>"$log" 2>&1 || true
            rm -rf "$state/storage" "$state/runroot" "$state/networks"
        fi
    fi
    rm -rf "$state/podman.sock" "$state/secrets" "$state/model"
    [ "$status" = 0 ] || say "failed; all output: $log"
    exit "$status"
}

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

clean=no
[ "${1:-}" != --clean ] || clean=yes
mkdir -p "$state"
chmod 0711 "$state"
: >"$log"
exec 9>"$state/lock"
flock --nonblock 9 || fail "another container test is running"
project=sub100-test
trap clean_up EXIT
trap 'exit 130' INT TERM

python -c 'import openai, pytest, testcontainers' || fail "run it as 'make container-test'"
make_tools
say "lint"
"$root/infra/containers/lint.sh"
install_podman
configure_podman
make_base
build_images

say "secrets and a tiny model"
rm -rf "$state/secrets" "$state/model"
quietly 30 "$root/infra/containers/prepare.sh" "$state/secrets"
quietly 120 env PYTHONPATH="$root/infra/local" python -m sub100_local.tiny_model "$state/model"
export BASE_IMAGE="$base" SUB100_IMAGES="$images" SUB100_TAG="$tag" ENGINE=sim
export SUB100_NATS_IMAGE="$images/standin-nats:$tag" SUB100_REDIS_IMAGE="$images/standin-redis:$tag"
export SUB100_SECRETS_DIR="$state/secrets" SUB100_MODEL_DIR="$state/model"
PORT="$(free_port)" TRACES_PORT="$(free_port)"
export PORT TRACES_PORT

say "compose file up"
compose 120 down --volumes || true
compose 180 up -d --no-build || { tail -n 40 "$log" >&2; fail "podman-compose up"; }
python "$root/infra/containers/acceptance.py" "$project" "$state/secrets/demo.key"
say "compose file down"
compose 180 down --volumes || fail "podman-compose down"

say "integration suite on containers"
rm -f "$state/podman.sock"
podman system service --time 0 "unix://$state/podman.sock" >>"$log" 2>&1 9>&- &
service_pid=$!
cd "$root"
DOCKER_HOST="unix://$state/podman.sock" TESTCONTAINERS_RYUK_DISABLED=true \
    TESTCONTAINERS_CONNECTION_MODE=docker_host TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1 \
    SUB100_TEST_BACKEND=docker SUB100_TEST_NATS_IMAGE="$SUB100_NATS_IMAGE" SUB100_TEST_REDIS_IMAGE="$SUB100_REDIS_IMAGE" \
    timeout --foreground --kill-after=30 1200 python -m pytest -q -m "not vllm and not long" -p no:cacheprovider tests/integration
say "passed"
