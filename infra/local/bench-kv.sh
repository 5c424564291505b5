#!/bin/sh
# 'make bench-kv': two engines in the engine environment, the default model unless --model says otherwise.
model=$(python -m sub100_local model) || exit 1
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
exec "$SUB100_ENGINE_PYTHON" -m bench.kv_transfer --model "$model" "$@"
