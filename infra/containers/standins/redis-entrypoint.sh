#!/bin/sh
# As the official image's: every module in the modules' directory is loaded, the query engine among them.
set -eu
if [ "$1" = redis-server ]; then
    for module in /usr/local/lib/redis/modules/*.so; do
        set -- "$@" --loadmodule "$module"
    done
fi
exec "$@"
