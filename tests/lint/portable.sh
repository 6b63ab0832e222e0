#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the portable wheels of `make dist` promise, as far as a minute allows; `make check-dist`
# builds and checks them. The tree calls no function that glibc has only since a version after 2.28.
# The tag that a wheel gets is the one that auditwheel finds: for this build's wheel, and for wheels
# of small libraries that need an older glibc, a newer one, and a library that is not glibc's.
. "$(dirname "$0")/../lib.sh"

export LC_ALL=C # the order of names, for sort and join
promise=28
mapfile -t files < <(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$ROOT/api/packaging python3 -c '
import backend
print(*sorted({*backend.LIBRARIES.values(), backend.PROGRAM}), sep="\n")')

# --- functions of glibc ---

# since: "NAME MINOR" for each name of this machine's glibc: it has the name since 2.MINOR
since() {
	local name
	for name in libc.so.6 libm.so.6 "$(basename "$(echo /lib*/ld-linux-*.so.*)")"; do
		readelf --dyn-syms -W "$(${CC:-cc} -print-file-name="$name")"
	done | sed -nE 's/.* ([A-Za-z0-9_]+)@@?GLIBC_2[.]([0-9]+).*/\1 \2/p' |
		sort -k 1,1 -k 2,2n | sort -u -s -k 1,1
}
# called FILE...: the names that the files take from glibc
called() {
	local file
	for file; do readelf --dyn-syms -W "$file"; done |
		awk '$7 == "UND" && $8 ~ /@GLIBC_2[.]/ { sub("@.*", "", $8); print $8 }' | sort -u
}
# newer FILE...: the names among them that glibc has only since a version after the promised one. In
# older headers, the functions of stat() are made of others, and strtol() has no second name.
newer() {
	called "$@" | sed 's/^__isoc23_//' | sort -u | join -a 1 -e unknown -o 0,2.2 - since |
		awk -v promise=$promise '$1 !~ /^[lf]?stat(at)?(64)?$/ &&
			($2 == "unknown" || $2 + 0 > promise)'
}
# calls NAME CALL: a library that makes this call
calls() {
	printf '#define _GNU_SOURCE\n%s\nlong f(long a, void *p) { return (long)%s; }\n' \
		'#include <fcntl.h>
		#include <pthread.h>
		#include <stdlib.h>
		#include <sys/stat.h>
		#include <unistd.h>' "$2" >"$1.c"
	${CC:-cc} -shared -fPIC -D_FILE_OFFSET_BITS=64 -o "$1" "$1.c"
}
since >"$TMP/since"
t "glibc's names have versions" grep -qx 'gettid 30' since
calls fcntl 'fcntl((int)a, F_GETFD)'
calls thread 'pthread_create(p, 0, p, 0)'
calls number 'strtol(p, 0, 10) + stat(p, p)'
calls gettid 'gettid()'
t "old functions are accepted, by whatever version they are linked" prints "" \
	newer fcntl thread number
t "a newer function is found" prints "gettid 30" newer fcntl gettid
t "the tree calls no function newer than glibc 2.$promise" prints "" \
	newer "${files[@]/#/$BUILD/}"

# --- tags ---

# packed FOLDER: makes a wheel of what lies in the folder, and prints its name
packed() {
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$ROOT/api/packaging python3 -c '
import backend, sys
print(backend.pack(".", sys.argv[1]))' "$1"
}
# folder NAME FILE...: a folder with the names of a build, whose files are these, in turn
folder() {
	local name=$1 i=0 file
	shift
	for file in "${files[@]}"; do
		mkdir -p "$name/$(dirname "$file")"
		cp "${@:i++ % $# + 1:1}" "$name/$file"
	done
}
# agrees FOLDER TAG: the wheel has this tag, and auditwheel finds it
agrees() {
	local wheel tag
	wheel=$(packed "$1") || return
	tag=${wheel##*-} tag=${tag%.whl}
	echo "$tag"
	grep -qx "$2" <<<"$tag" || return
	"$auditwheel" show "$wheel" | tee shown
	tr -s ' \n' ' ' <shown |
		grep -q "is consistent with the following platform tag: \"$tag\""
}

auditwheel=$BUILD/auditwheel/bin/auditwheel
[ -x "$auditwheel" ] || { python3 -m venv "$BUILD/auditwheel" &&
	timeout 60 "$BUILD/auditwheel/bin/pip" install -q auditwheel; } >install.log 2>&1 || true
if [ ! -x "$auditwheel" ]; then
	echo "SKIP: no verifier of wheels: pip cannot install auditwheel: $(tail -n 1 install.log)"
	t_done
fi
folder old fcntl
folder new fcntl thread
printf '#include <lmdb.h>\nint g(MDB_env **e) { return mdb_env_create(e); }\n' >other.c
${CC:-cc} -shared -fPIC -o other other.c -llmdb
folder others fcntl other
t "this build's wheel needs more than glibc" agrees "$BUILD" 'linux_.*'
t "a wheel for glibc 2.28" agrees old 'manylinux_2_28_.*'
t "a wheel that was linked with a newer glibc" agrees new 'manylinux_2_3[0-9]_.*'
t "a wheel that needs LMDB" agrees others 'linux_.*'
t_done
