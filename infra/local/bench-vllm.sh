#!/bin/sh
# 'bench-vllm.sh slo|kv_transfer|...': a benchmark of that name, it and all services in the engine environment, on the
# default model (or, after the tiny one, on both).
name=$1
shift
model=$(python -m sub100_local model) || exit 1
export SUB100_TEST_REDISEARCH="$SUB100_REDISEARCH"
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
exec "$SUB100_ENGINE_PYTHON" -m "bench.$name" --model "$model" "$@"
