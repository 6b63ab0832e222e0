# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2119,SC2120,SC2154
#
# registry.sh - sourced after lib.sh and store.sh: container registries of Debian's docker-registry
# on the loopback interface. All of them stop when the script ends.
#
#	registry_start main tls auth      # sets main_port, main_pid; listens on 127.0.0.1
#	foundry-store push model "oci://127.0.0.1:$main_port/models/a:1"

registry_pids=()
registry_stop_all() {
	local pid
	for pid in "${registry_pids[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}
trap registry_stop_all EXIT

command -v docker-registry >/dev/null ||
	t_skip "no docker-registry; run .ci/setup build ci"

# The user is "user", the password "secret" (bcrypt).
# shellcheck disable=SC2016
registry_htpasswd='user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a'

# No setting of this machine for container tools takes part.
export HOME=$TMP/home XDG_CONFIG_HOME=$TMP/home/.config
unset DOCKER_CONFIG REGISTRY_AUTH_FILE XDG_RUNTIME_DIR http_proxy https_proxy all_proxy no_proxy
mkdir -p "$HOME/.docker"

free_port() {
	python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# tls_make: makes ca.crt, and server.crt and client.crt that it signed, with their keys
tls_make() {
	local name ec=(-newkey ec -pkeyopt "ec_paramgen_curve:prime256v1" -nodes)
	[ ! -e ca.crt ] || return 0
	openssl req -x509 "${ec[@]}" -days 2 -subj "/CN=test CA" -keyout ca.key -out ca.crt \
		2>/dev/null
	for name in server client; do
		openssl req "${ec[@]}" -subj "/CN=$name" -keyout $name.key -out $name.csr \
			2>/dev/null
		openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
			-extfile <(echo "subjectAltName=IP:127.0.0.1") -out $name.crt 2>/dev/null
	done
}

# registry_config NAME OPTION...: writes NAME.yml. Options: tls, client (certificates of clients),
# auth, proxy=URL
registry_config() {
	local name=$1 option
	shift
	cat <<-END
	version: 0.1
	log:
	  level: warn
	storage:
	  filesystem:
	    rootdirectory: $TMP/$name.data
	  delete:
	    enabled: true
	http:
	  addr: 127.0.0.1:$(eval "echo \$${name}_port")
	END
	for option; do
		case $option in
		tls)
			printf '  tls:\n    certificate: %s/server.crt\n' "$TMP"
			printf '    key: %s/server.key\n' "$TMP"
			;;
		client) printf '    clientcas:\n      - %s/ca.crt\n' "$TMP" ;;
		auth)
			printf 'auth:\n  htpasswd:\n    realm: test\n    path: %s/htpasswd\n' \
				"$TMP"
			;;
		proxy=*) printf 'proxy:\n  remoteurl: %s\n' "${option#proxy=}" ;;
		esac
	done
}

# registry_start NAME OPTION...: starts a registry, again if it was stopped
registry_start() {
	local name=$1 port scheme=http
	[ -n "$(eval "echo \${${name}_port:-}")" ] || eval "${name}_port=$(free_port)"
	port=$(eval "echo \$${name}_port")
	[[ " $* " != *" tls "* ]] || { tls_make; scheme=https; }
	printf '%s\n' "$registry_htpasswd" >htpasswd
	registry_config "$@" >"$name.yml"
	OTEL_TRACES_EXPORTER=none docker-registry serve "$name.yml" >>"$name.log" 2>&1 &
	eval "${name}_pid=$!"
	registry_pids+=($!)
	for _ in {1..100}; do
		curl -so /dev/null -k "$scheme://127.0.0.1:$port/v2/" 2>/dev/null && return
		# a server that wants a certificate answers nothing else
		[ $? = 56 ] && return
		sleep 0.1
	done
	cat "$name.log"
	return 1
}

# registry_stop NAME
registry_stop() {
	local pid
	pid=$(eval "echo \$${1}_pid")
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || true
}

# log_in HOST:PORT [USER:PASSWORD]: writes Docker's configuration
log_in() {
	printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$1" \
		"$(printf '%s' "${2:-user:secret}" | base64)" >"$HOME/.docker/config.json"
}

# hostile_start NAME [OTHER]: starts registry_hostile.py with the folder NAME; sets NAME_port. With
# tls_hostile it speaks TLS
hostile_start() {
	local name=$1 port scheme=http${HOSTILE_TLS:+s}
	port=$(free_port)
	eval "${name}_port=$port"
	mkdir -p "$name"
	python3 "$ROOT/tests/cli/registry_hostile.py" "$port" "$TMP/$name" "${@:2}" \
		>>"$name.log" 2>&1 &
	registry_pids+=($!)
	for _ in {1..100}; do
		curl -so /dev/null -k "$scheme://127.0.0.1:$port/" && return
		sleep 0.1
	done
	cat "$name.log"
	return 1
}
tls_hostile() {
	tls_make
	HOSTILE_TLS="$TMP/server.crt $TMP/server.key $TMP/ca.crt" hostile_start "$@"
}

# hostile_image: seals the image m/one of the files a and b; sets blob, the path of a's blob
hostile_image() {
	head -c 900000 /dev/urandom >a
	head -c 500000 /dev/urandom >b
	export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=2 FOUNDRY_REGISTRY_TIMEOUT=2
	"$store_image" s m/one a b >/dev/null
	blob="blobs/sha256:$(id_of a)"
}

# servers_own: for functions of side_by_side, which start servers and have a HOME of their own
servers_own() {
	registry_pids=()
	trap registry_stop_all EXIT
	export HOME=$TMP/home XDG_CONFIG_HOME=$TMP/home/.config
	mkdir -p "$HOME/.docker"
}

# hostile_begin [pushed]: starts the server "bad" in front of the registry "real"; sets at; pushes
# m/one, unless it is pushed. Functions that share a registry must not push at once: docker-registry
# writes its links in place, so another request may find one empty, and answer DIGEST_INVALID.
hostile_begin() {
	hostile_start bad "127.0.0.1:$real_port"
	at=oci+http://127.0.0.1:$bad_port/m/one
	fault
	[ "${1:-}" = pushed ] || t "push" push
}

# The functions below work with the server "bad", on the image that $at names, in the store t.

# fault LINE...: the faults from now on
fault() { printf '%s\n' "$@" >bad/faults; : >bad/headers; }
asked() { grep -c "$1" bad/headers; }
push() { foundry-store push --private m/one "$at"; }
# fetch [STORE]: pulls into a new store
fetch() { rm -rf t; foundry-store -s t pull "$at" && foundry-store -s t verify; }
# refuses STATUS REGEX: a pull into a new store fails, names nothing, and leaves it sound; without
# the fault it succeeds
refuses() {
	rm -rf t
	says_only "$1" "$2" foundry-store -s t pull "$at" || return
	foundry-store -s t verify || return
	[ -z "$(foundry-store -s t ls -q)" ] || { echo "it set a ref"; return 1; }
	fault
	foundry-store -s t pull "$at" && foundry-store -s t verify
}
