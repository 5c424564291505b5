#!/bin/sh
# The Dockerfiles against hadolint, the compose files against the compose specification's schema. Needs no root.
set -eu
# shellcheck source=infra/containers/common.sh
. "$(dirname -- "$0")/common.sh"
make_tools
cd "$root"
"$tools/bin/hadolint" --failure-threshold info infra/images/Dockerfile infra/containers/standins/Dockerfile
"$tools/bin/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml infra/containers/gpu.yml infra/containers/rdma.yml
