#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lib/fd.c alone makes descriptors; it never returns 0, 1 or 2. lib/file.c alone writes files and
# blocks SIGXFSZ while it does so. It alone reads directories, and distinguishes an error from the
# end.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

makers='(__)?open(at)?(64)?(_2)?|creat(64)?|f(re)?open(64)?|opendir|scandir(at)?(64)?'
makers+='|n?ftw(64)?|fts_open|glob(64)?'
makers+='|dup[23]?|pipe2?|memfd_create|memfd_secret|shm_open|mq_open|tmpfile(64)?'
makers+='|mk(o)?stemps?(64)?'
makers+='|popen'
makers+='|socket(pair)?|accept4?|recvm?msg|eventfd|timerfd_create|signalfd|inotify_init1?'
makers+='|fanotify_init|epoll_create1?'
makers+='|userfaultfd|pidfd_open|perf_event_open|io_uring_.*|openpty|posix_openpt|syscall'
makers+='|mdb_env_open|mdb_env_copy.*'
writers='p?writev?(64)?2?|ftruncate(64)?|truncate(64)?|(posix_)?fallocate(64)?|copy_file_range'
writers+='|sendfile(64)?'
listers='readdir(64)?(_r)?'

mapfile -t sources < <(tree_files '*.c' | grep -E '^(lib|arch|mm|graph|store|hook|image|run|api)/' |
	grep -vE '^api/examples/')
objects=("${sources[@]/%.c/.o}")
# Lines "source: symbol" for every undefined symbol of all that is built but the examples.
(cd "$BUILD/obj" && nm -A -u "${objects[@]}") |
	sed -E 's/\.o: *U /.c: /; s/@.*//; s/: (__)?(.*)_chk$/: \2/' | sort -u >"$TMP/calls"
# calls REGEX: prints the lines whose symbol matches
calls() { grep -E ": ($1)\$" "$TMP/calls" || true; }
# dups: prints files that duplicate a descriptor without lib/fd.c
dups() {
	tree_files '*.c' '*.h' | grep -E '^(lib|arch|mm|graph|store|hook|image|run|api)/' |
		xargs grep -lE '\<F_DUPFD' || true
}

# safe_read.c asks the kernel to read memory by a system call that sanitizers do not replace,
# stream.c for the thread's number. LMDB and glob() open files themselves; mdb_env_copyfd2() gets
# its descriptor.
t "descriptors are made in one place" prints "arch/sim/stream.c: syscall
hook/ldconf.c: glob
lib/fd.c: memfd_create
lib/fd.c: open
lib/fd.c: openat
lib/fd.c: pipe2
lib/safe_read.c: syscall
store/env_copy.c: mdb_env_copyfd2
store/env_open.c: mdb_env_open" calls "$makers"
t "only lib/fd.c duplicates descriptors" prints lib/fd.c dups
t "calls that open files are between fdry_fd_enter() and fdry_fd_leave()" bash -c \
	"grep -B2 '\\<glob(' hook/ldconf.c | grep -q fdry_fd_enter &&
	grep -A3 '\\<glob(' hook/ldconf.c | grep -q fdry_fd_leave &&
	grep -B7 '\\<mdb_env_open(' store/env_open.c | grep -q fdry_fd_enter &&
	grep -A3 '\\<mdb_env_open(' store/env_open.c | grep -q fdry_fd_leave"
# A pipe has no length; phys.c blocks the signal during many writes at once; punching a hole makes
# no file longer.
t "files are written in one place" prints "arch/sim/phys.c: fallocate
arch/sim/phys.c: pwrite
lib/file.c: fallocate
lib/file.c: ftruncate
lib/file.c: pwrite
lib/file.c: write
store/verify_child.c: write" calls "$writers"
t "directories are read in one place" prints "lib/file.c: readdir" calls "$listers"
t_done
