# SPDX-License-Identifier: Apache-2.0
#
# symbols.awk - awk -f symbols.awk hooks.def symbols.list: a numbered line per symbol,
# HOOKED(nr, symbol) where hooks.def has it, else JUMP(nr, symbol). A hook that the driver
# does not export is an error.

match($0, /^HOOK\([A-Za-z0-9_]+/) { hooked[substr($0, 6, RLENGTH - 5)] = 1 }
FILENAME ~ /symbols\.list$/ && NF {
	print (($1 in hooked) ? "HOOKED" : "JUMP") "(" nr++ ", " $1 ")"
	delete hooked[$1]
}
END {
	for (s in hooked) {
		print "hooks.def: the driver has no " s > "/dev/stderr"
		exit 1
	}
}
