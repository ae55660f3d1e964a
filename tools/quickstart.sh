#!/usr/bin/env bash
# From a bare machine to a layer that ran: installs what is missing, builds the command line, writes a
# small random checkpoint in DeepSeek-V3's layout, runs its layer on 4 ranks of the CPU backend, twice,
# and compares the output with the reference. May be run again at any time; writes below build/ only.
#
#   tools/quickstart.sh [--no-setup]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  '') tools/setup.sh ;;
  --no-setup) ;;
  -h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *)
    echo "quickstart: unknown argument '$1' (only --no-setup is known)" >&2
    exit 2
    ;;
esac

out=build/quickstart
megamoe=build/host/src/cli/megamoe
jobs="${MEGAMOE_JOBS:-$(nproc)}"

say() { printf '\n== %s\n' "$*"; }
# within SECONDS COMMAND...: a command with a time limit.
within() { timeout --kill-after=10 "$@"; }

say "build (log: $out/build.log)"
mkdir -p "$out"
{
  within 60 cmake --preset host -DMEGAMOE_BY_FOLDER=ON
  within 600 cmake --build build/host -j "$jobs" --target megamoe_cli
} >"$out/build.log" 2>&1 || {
  tail -n 40 "$out/build.log"
  exit 1
}
"$megamoe" --version

say "a checkpoint: one layer, 16 experts, 1 shared expert, top-4, FP8 weights; 64 tokens"
within 60 tools/python.sh tools/make_checkpoint.py --family deepseek-v3 --out "$out/checkpoint" \
  --hidden 512 --intermediate 256 --experts 16 --top-k 4 --layers 1 --tokens 64 --seed 1
ls -l "$out/checkpoint"

say "the layer on 4 ranks, called twice"
within 120 "$megamoe" run --checkpoint "$out/checkpoint" --layer 0 \
  --input "$out/checkpoint/tokens.safetensors" --shared-experts 1 --ranks 4 --repeat 2 \
  --output "$out/y.safetensors"

say "done"
cat <<END
What this showed: 4 ranks exchanged 64 tokens through the protocol that the kernel runs, on threads;
each received the rows that the reference counts; y is as close to the reference, in double, as the
bound above; and the second call gave the same bits. Nothing of it ran on a GPU.
Output: $out/y.safetensors. Next: $megamoe run --help, $megamoe plan --help, tools/check.sh
END
