#!/bin/sh
# All tests but the long ones: the control environment runs what needs no vLLM, the engine's the rest. Arguments go
# to pytest. Pytest's code 5 (no test selected) counts as a failure: a suite that vanished is no success.
failed=0
run() {
    echo "== $1"
    shift
    "$@" || failed=1
}
run "control environment" "$SUB100_CONTROL_PYTHON" -m pytest -q -m "not vllm and not long" "$@"
run "engine environment" "$SUB100_ENGINE_PYTHON" -m pytest -q -m "vllm and not long" -p no:cacheprovider "$@"
exit $failed
