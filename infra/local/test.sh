#!/bin/sh
# All tests but the long ones, in two runs side by side: tests wait more than they compute. The control environment
# runs whatever needs no vLLM; the engine's runs the end-to-end tests on real vLLM, and what is marked vllm elsewhere.
# Arguments go to both. Pytest's code 5 (no test selected) counts as a failure: a suite that vanished is no success.
export SUB100_TEST_REDISEARCH="$SUB100_REDISEARCH"
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
on_vllm=$(grep -rlE 'mark\.vllm' tests --include='test_*.py' | grep -v '^tests/e2e/')
log=$(mktemp)
# shellcheck disable=SC2086 # file names, one word each
SUB100_TEST_PORTS=16000-24000 "$SUB100_ENGINE_PYTHON" -m pytest -q -m "not long" -p no:cacheprovider \
    tests/e2e $on_vllm "$@" >"$log" 2>&1 &
engine=$!
trap 'kill "$engine" 2>/dev/null; wait "$engine"; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=0
echo "== control environment"
SUB100_TEST_PORTS=24000-32000 "$SUB100_CONTROL_PYTHON" -m pytest -q -m "not vllm and not long" "$@" || failed=1
echo "== engine environment"
wait "$engine" || failed=1
cat "$log"
exit $failed
