#!/bin/sh
# All tests but the long ones. The control environment runs whatever needs no vLLM; the engine's runs the end-to-end
# tests on real vLLM, and what is marked vllm elsewhere. Arguments go to both pytest runs. Pytest's code 5 (no test
# selected) counts as a failure: a suite that vanished is no success.
failed=0
run() {
    echo "== $1"
    shift
    "$@" || failed=1
}
export SUB100_TEST_REDISEARCH="$SUB100_REDISEARCH"
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
run "control environment" "$SUB100_CONTROL_PYTHON" -m pytest -q -m "not vllm and not long" "$@"
on_vllm=$(grep -rlE 'mark\.vllm' tests --include='test_*.py' | grep -v '^tests/e2e/')
# shellcheck disable=SC2086 # file names, one word each
run "engine environment" "$SUB100_ENGINE_PYTHON" -m pytest -q -m "not long" -p no:cacheprovider tests/e2e $on_vllm "$@"
exit $failed
