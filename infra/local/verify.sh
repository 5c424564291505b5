#!/bin/sh
# The long runs, one after the other; every one runs, and a failure of any is the result. What they measured lies in
# bench/results/, and bench/results/verify.txt says when, on what and how each ended: commit it.
report=bench/results/verify.txt
failed=0
mkdir -p bench/results
{
    echo "verify: $(date -u +%Y-%m-%dT%H:%MZ), $(nproc) cores, $(uname -srm), commit $(git rev-parse --short HEAD)"
} >"$report"
run() {
    what=$1
    shift
    echo "== $what"
    began=$(date +%s)
    if "$@"; then result=passed; else result=FAILED failed=1; fi
    echo "$result  $(($(date +%s) - began)) s  $what" >>"$report"
}
longs() {
    python=$1 which=$2
    shift 2
    "$python" -m pytest -q -m "long and $which" "$@"
    code=$?
    [ $code -eq 5 ] || return $code # no long test of this kind is no failure
}
export SUB100_TEST_REDISEARCH="$SUB100_REDISEARCH"
run "long tests, control environment" longs "$SUB100_CONTROL_PYTHON" "not vllm" tests
run "long tests, engine environment" longs "$SUB100_ENGINE_PYTHON" "not skipif" tests/e2e tests/chaos/test_soak.py tests/chaos/test_idle.py
run "bench" make --no-print-directory bench
run "long prompts" make --no-print-directory bench-long
run "traces store" make --no-print-directory bench-traces
for target in slo bench-ttft bench-kv bench-spec bench-chunk bench-cache bench-cancel bench-overlap; do
    run "$target" make --no-print-directory "$target"
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    run "containers" make --no-print-directory container-test
else
    echo "not run  containers (needs root on Debian)" >>"$report"
fi
cat "$report"
exit $failed
