#!/bin/sh
# A worker serves its KV on one address, which other workers must reach: this container's own, unless it is set.
set -eu
address="$(hostname -i)"
: "${SUB100_PREFILL_KV_HOST:=${address%% *}}" "${SUB100_DECODE_KV_HOST:=${address%% *}}"
export SUB100_PREFILL_KV_HOST SUB100_DECODE_KV_HOST
exec python -m "sub100_$1"
