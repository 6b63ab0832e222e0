#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store init, and of the access rights that stat prints.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/default
uid=$(id -u)
mode() { stat -c %a "$@"; }

umask 000
t "init makes the default store" prints \
	"made $TMP/default, which is for user $uid alone (mode 0700)" foundry-store init
t "the default store is private under any umask" prints "$(printf '700\n600\n600')" mode default \
	default/data.mdb default/lock.mdb
t "init of an existing store says so" bash -c \
	"foundry-store init | grep -q '^a store exists already: $TMP/default, '"
umask 077
t "init --shared DIR" prints "made shared, which is for all of group $(id \
	-g) (mode 2770, owner $uid)" foundry-store init --shared shared
t "a shared store is the group's under any umask" prints "$(printf '2770\n660\n660')" mode shared \
	shared/data.mdb shared/lock.mdb
t "init --shared of a private store is refused" says_only 6 "its owner alone" foundry-store init \
	--shared
t "the refused init leaves the private store's mode" prints 700 mode default
t "init as JSON" json \
	"j['made'] and j['store'] == 'third' and j['sharing']['mode'] == '2770' and
		j['sharing']['group'] and
	j['sharing']['gid'] == $(id -g)" foundry-store init --json --shared third
t "init of an existing store as JSON" json "not j['made']" foundry-store init --json third
t "stat prints the mode" bash -c \
	"foundry-store stat -s shared | sed -n 2p | grep -qx 'for all of group $(id \
	-g) (mode 2770, owner $uid)'"
t "stat as JSON" json \
	"not j['sharing']['group'] and j['sharing']['uid'] == $uid and
		not j['sharing']['readonly']" foundry-store stat --json
chmod o+w shared
t "init refuses a directory that everybody may write" says_only 6 "chmod o-w" foundry-store init \
	shared
chmod o-w shared && chmod g-r shared/data.mdb
t "stat refuses a store whose members have other rights" says_only 6 "would differ in rights" \
	foundry-store stat -s shared
chmod g+r shared/data.mdb

# --- a place that cannot be written ---

"$BUILD/tests/cli/store_many" default 3
# read_only COMMAND...: runs the command in namespaces of its own, in which the stores are mounted
# read-only
read_only() {
	unshare -rm bash -c \
		'mount --bind default default && mount -o remount,bind,ro default && "$@"' - "$@"
}
if read_only true 2>no; then
	t "read-only: ls" bash -c "$(declare -f \
		read_only); read_only foundry-store ls | grep -q '^many/1 '"
	t "read-only: verify" read_only foundry-store verify
	t "read-only: export" read_only foundry-store export -o pack many/1
	t "read-only: stat" bash -c "$(declare -f \
		read_only); read_only foundry-store stat | grep -q 'on read-only media'"
	t "read-only: gc --dry-run" read_only foundry-store gc -n
	t "read-only: rm --dry-run" read_only foundry-store rm -n many/1
	t "read-only: evict --dry-run" read_only foundry-store evict -n 1K
	t "read-only: rm" says_only 6 "read-only media" read_only foundry-store rm many/1
	t "read-only: tag" says_only 6 "read-only media" read_only foundry-store tag many/1 other
	t "read-only: import" says_only 6 "read-only media" read_only foundry-store import pack
fi
t "init refuses a directory that is not empty" says_only 3 "not empty" foundry-store init .
t_done
