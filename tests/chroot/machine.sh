# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# machine.sh - sourced after lib.sh by the scripts of this folder: a minimal Debian or Ubuntu.
#
#	machine_make PACKAGES SUITE [MIRROR [SCRIPT]]    # sets root and clean; needs root
#	machine_end
#
# The arguments are debootstrap's; the words of DEBOOTSTRAP_OPTIONS precede them. The machine is a
# chroot with files of its own and this machine's kernel and addresses. Its mounts are in a
# namespace of their own and end with the script.
clean=(env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)

# If this machine reaches the network through a proxy, the chroot must do the same.
share_network() {
	local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} proxies
	cp -L /etc/resolv.conf "$root/etc/"
	mapfile -t proxies < <(env | grep -iE '^(http|https|no)_proxy=' || true)
	clean+=("${proxies[@]}")
	[ -e "$bundle" ] || return 0
	cp -L "$bundle" "$root/etc/host.crt"
	clean+=(PIP_CERT=/etc/host.crt)
}

machine_make() {
	local packages=$1 suite=$2
	local options
	read -ra options <<<"${DEBOOTSTRAP_OPTIONS:-}"
	root=$TMP/root
	echo "making a minimal $suite in $root"
	debootstrap --variant=minbase --include="$packages" "${options[@]}" "$suite" "$root" \
		"${@:3}" >"$TMP/debootstrap.log" 2>&1 ||
		{ tail -n 5 "$TMP/debootstrap.log"; exit 1; }
	mount -t proc proc "$root/proc"
	mount -t tmpfs tmpfs "$root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
	ln -sf pts/ptmx "$root/dev/ptmx"
	share_network
}
machine_end() { umount "$root/proc" "$root/dev/shm" "$root/dev/pts"; }
