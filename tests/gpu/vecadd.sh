#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# vecadd on a GPU: PTX, captured in one process, launched in another.
. "$(dirname "$0")/../lib.sh"

nvidia-smi -L >/dev/null 2>&1 || t_skip "no GPU"
vecadd=$BUILD/examples/vecadd
t "capture" "$vecadd" -s store capture
t "load" bash -c '"$1" -s store load | tee out && grep -q "NVIDIA.*every number is right" out' - \
	"$vecadd"
t "the same id again" bash -c \
	'"$1" -s store2 capture >again && "$1" -s store load >out &&
	grep -q "$(sed -n "s/^image //p" again)" out' - "$vecadd"
t "a page with the time of its kernel" sh -c \
	'foundry-store -s store report vecadd --time -o page.html &&
	grep "<code>vecadd</code></td><td class=\"bar time\">" page.html'
t_done
