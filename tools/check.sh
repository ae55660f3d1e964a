#!/usr/bin/env bash
# Runs the project's checks: what people run before they propose a change, and what CI runs.
#
#   tools/check.sh [stage...]     default: every stage below that this machine can run
#
#   format   clang-format 14, ruff
#   gates    the project's own rules (tools/gates), and the tests of those rules
#   tidy     clang-tidy on the host sources
#   host     builds the preset host, runs every test
#   python   builds and installs the Python package, runs its tests
#   docs     runs the commands and compiles the code shown in the documents
#   tsan     tests with the label tsan under ThreadSanitizer
#   asan     tests with the label asan under AddressSanitizer and UndefinedBehaviorSanitizer
#   cuda     compiles the kernels, runs the tests with the label cuda (needs nvcc, no GPU)
#   mutants gpu multi ladder sanitizer   only when named: tools/stage_NAME.sh
#
# Every stage has a time limit, after which all its processes are killed. Logs: build/check/STAGE.log.
# The first failure stops the run. The last line is `N passed, N failed`: tests where a stage runs
# tests, else the stage itself. Exit status: 0 passed, 1 failed, 2 unknown stage.
# MEGAMOE_JOBS: parallel jobs (default: the number of cores). MEGAMOE_STAGE_LIMIT: seconds that each
# stage may take, instead of its own limit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/build/venv/bin:$PATH"
export CMAKE_COLOR_DIAGNOSTICS=OFF CTEST_OUTPUT_ON_FAILURE=1

default_stages=(format gates tidy host python docs tsan asan cuda)
named_stages=(mutants gpu multi ladder sanitizer)
declare -A limit_s=([format]=60 [gates]=900 [tidy]=900 [host]=900 [docs]=900 [tsan]=900 [asan]=900
  [python]=600 [cuda]=900 [mutants]=900 [gpu]=900 [multi]=900 [ladder]=1800 [sanitizer]=1800)
jobs="${MEGAMOE_JOBS:-$(nproc)}"

usage() { sed -n '2,22s/^# \{0,1\}//p' "$0"; }
find_nvcc() { command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; }

need() {
  command -v "$1" >/dev/null && return 0
  echo "$1 not found: run tools/setup.sh"
  return 1
}

# ---- stages: each runs in its own process; what it prints is its log. A stage that ran tests says so
# in a line `counts: PASSED FAILED SKIPPED`.

sources() { git ls-files --cached --others --exclude-standard -- "$@"; }

stage_format() {
  need clang-format-14
  need ruff
  sources '*.c' '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs -r clang-format-14 --dry-run -Werror
  ruff format --check .
  ruff check .
}

stage_gates() {
  tools/python.sh tools/gates/run_all.py --jobs "$jobs"
}

configure() {
  local preset="$1"
  shift
  cmake --preset "$preset" -DMEGAMOE_BUILD_TESTS=ON -DMEGAMOE_BY_FOLDER=ON "$@"
}

stage_tidy() {
  need clang-tidy
  configure host >/dev/null
  tools/python.sh tools/tidy.py --build build/host --jobs "$jobs"
}

# run_ctest PRESET [ctest argument...]: runs the tests and prints the counts.
run_ctest() {
  local preset="$1" status=0 out
  shift
  out="build/check/$preset.ctest"
  ctest --test-dir "build/$preset" -j "$jobs" --no-tests=error "$@" 2>&1 | tee "$out" || status=1
  tools/python.sh tools/ctest_counts.py "$out" || status=1
  return "$status"
}

stage_host() {
  configure host
  cmake --build build/host -j "$jobs"
  run_ctest host
}

stage_docs() {
  tools/python.sh tests/docs/run_snippets.py --build build/host
}

stage_tsan() {
  configure host-tsan
  cmake --build build/host-tsan -j "$jobs" --target tests_tsan
  # ThreadSanitizer's shadow memory does not fit every randomised address layout.
  local fixed_layout=()
  if setarch -R true 2>/dev/null; then fixed_layout=(setarch -R); fi
  export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 ${TSAN_OPTIONS:-}"
  "${fixed_layout[@]}" bash "$0" --ctest host-tsan -L '^tsan$'
}

stage_asan() {
  configure host-asan
  cmake --build build/host-asan -j "$jobs" --target tests_asan
  export ASAN_OPTIONS="detect_stack_use_after_return=1 strict_string_checks=1 ${ASAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
  run_ctest host-asan -L '^asan$'
}

stage_cuda() {
  configure cuda "-DCMAKE_CUDA_COMPILER=$(find_nvcc)"
  # All CUDA code compiles here, that of the tests that need a GPU too.
  cmake --build build/cuda -j "$jobs" --target tests_cuda tests_gpu tests_multi tests_ladder sanitizer_driver_racy megamoe_cli
  run_ctest cuda -L '^cuda$'
}

case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
  --body)
    "stage_$2"
    exit
    ;;
  --ctest)
    shift
    run_ctest "$@"
    exit
    ;;
esac

# ---- the runner

stage_pid=''
kill_stage() {
  [ -z "$stage_pid" ] || kill -KILL -- "-$stage_pid" 2>/dev/null || true
}
trap 'kill_stage; exit 130' INT TERM
trap kill_stage EXIT

passed=0 failed=0 skipped=0

# run_stage NAME COMMAND...: the command leads a process group of its own, which does not outlive it.
run_stage() {
  local name="$1" log="build/check/$1.log" started status=0 p=0 f=0 s=0 counts limit
  shift
  limit="${MEGAMOE_STAGE_LIMIT:-${limit_s[$name]}}"
  started=$SECONDS
  setsid timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null &
  stage_pid=$!
  wait "$stage_pid" || status=$?
  kill_stage
  stage_pid=''
  if counts="$(grep '^counts: ' "$log" | tail -n 1)" && [ -n "$counts" ]; then
    read -r _ p f s <<<"$counts"
    [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1
  elif [ "$status" -eq 0 ]; then
    p=1
  else
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  local took=$((SECONDS - started)) word=ok
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    word="TIMED OUT (limit $limit s)"
  elif [ "$status" -ne 0 ]; then
    word=FAILED
  fi
  printf '%-8s %-6s %4d s   %d passed, %d failed, %d skipped\n' "$name" "$word" "$took" "$p" "$f" "$s"
  if [ "$status" -ne 0 ]; then
    printf -- '--- last lines of %s\n' "$log"
    tail -n 60 "$log"
    printf -- '---\n'
  fi
  return "$status"
}

finish() {
  local line="$passed passed, $failed failed"
  [ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
  printf '%s\n' "$line"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ] && exit 0
  exit 1
}

# not_run NAME REASON: no failure in a run of everything, but one when the stage was asked for.
not_run() {
  printf '%s: not run (%s)\n' "$1" "$2"
  if [ "$asked" -eq 1 ]; then
    failed=$((failed + 1))
    finish
  fi
}

asked=1
stages=("$@")
if [ $# -eq 0 ]; then
  asked=0
  stages=("${default_stages[@]}")
fi
for name in "${stages[@]}"; do
  case " ${default_stages[*]} ${named_stages[*]} " in
    *" $name "*) ;;
    *)
      printf "check.sh: unknown stage '%s'; known: %s %s\n" "$name" "${default_stages[*]}" \
        "${named_stages[*]}" >&2
      exit 2
      ;;
  esac
done

mkdir -p build/check
for name in "${stages[@]}"; do
  if [ "$name" = cuda ] && ! find_nvcc >/dev/null; then
    not_run cuda 'no nvcc'
  elif ! declare -F "stage_$name" >/dev/null; then
    script="tools/stage_$name.sh"
    if [ -x "$script" ]; then
      run_stage "$name" "$script" || finish
    else
      not_run "$name" "no $script"
    fi
  else
    run_stage "$name" bash tools/check.sh --body "$name" || finish
  fi
done
finish
