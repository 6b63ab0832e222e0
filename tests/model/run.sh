#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh MODEL FOLDER: spin finds no error in the model, and finds the lost object in each of its
# broken forms.
set -eu
model=$(realpath "$1")
mkdir -p "$2"
cd "$2"
command -v spin >/dev/null || { echo "spin is not installed" >&2; exit 1; }

# errors FLAGS: how many
errors() {
	# shellcheck disable=SC2086 # none or one
	spin $1 -a "$model" >/dev/null
	cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c
	./pan -m100000 >pan.out
	sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out
}

bad=0
for broken in "" -DNOTE_LATE -DTRUST -DNO_SCAN -DDROP -DCHILD_FIRST; do
	found=$(errors "$broken")
	states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	echo "${broken:-as it is}: $found errors in $states states"
	if [ -z "$broken" ]; then [ "$found" = 0 ] || bad=1; else [ "$found" != 0 ] || bad=1; fi
done
exit $bad
