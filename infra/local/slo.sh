#!/bin/sh
# 'make slo': the measuring client and all services in the engine environment; the tiny model, then the default one.
model=$(python -m sub100_local model) || exit 1
export SUB100_TEST_REDISEARCH="$SUB100_REDISEARCH"
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
exec "$SUB100_ENGINE_PYTHON" -m bench.slo --model "$model" "$@"
