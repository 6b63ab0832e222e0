#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Environment variables: one list (lib/config.def), one reader of it, one page that agrees with
# both.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

page=Documentation/api/environment.rst

# expanded: "name|type|allowed" of each line of the list, as the compiler sees it
expanded() {
	printf '%s\n' '#define FDRY_CONFIG(id, name, type, fallback, allowed, meaning) @ name | #type | allowed' \
		'#include "lib/config.def"' | "${CC:-cc}" -E -P -I. -x c - | tr '\n' ' ' | tr '@' '\n' |
		sed -E 's/"//g; s/ *\| */|/g; s/^ *//; s/ *$//' | grep . | LC_ALL=C sort -t'|' -k1,1
}

# section FIRST LAST: the variables with an entry between these headlines of the page
section() {
	sed -n "/^$1\$/,/^$2\$/p" $page | grep -oE '^``[A-Z][^:]*$' | grep -oE '[A-Z][A-Z0-9_]+' | LC_ALL=C sort
}

# entry NAME: what the page says of it
entry() { awk -v name="\`\`$1\`\`" '/^[^ ]/ && index($0, name) { on = 1; next } /^[^ ]/ { on = 0 } on' $page; }

# unsaid: words that a variable may be and its entry does not have
unsaid() {
	local name type allowed word
	while IFS='|' read -r name type allowed; do
		case $type in FLAG|COUNT|SIZE|CHOICE) ;; *) continue ;; esac
		for word in ${allowed//,/}; do
			[[ $word =~ ^(or|to)$ ]] || entry "$name" | grep -q "\`\`$word\`\`" || echo "$name: $word"
		done
	done <"$TMP/list"
}

# Files of the layers that ask the environment themselves. The software driver is no part of the
# library; a command asks for what every program of a terminal does.
askers() { grep -lE "\b(secure_)?getenv\([^)]|\benviron(\[|;)" "$@" | sort; }
mapfile -t layers < <(tree_files '*.c' '*.h' | grep -E '^(lib|arch|mm|graph|store|hook|image|run|api)/' | grep -v '^arch/sim/')

# of_sim: what the software driver asks for that is not its own
of_sim() { tree_files 'arch/sim/*.c' | xargs grep -hoE 'getenv\([^)]*\)' | grep -v '"FDRY_SIM_' || true; }
# of_commands: what the commands ask for
of_commands() { tree_files 'api/cmd/*.c' | xargs grep -hoE 'getenv\([^)]*\)' | sort -u; }
# of_python: what the package asks for that the list has not
of_python() {
	tree_files 'api/python/*.py' | xargs grep -hoE 'environ(\.get)?[[(]+"[A-Z_]+"' | grep -oE '[A-Z][A-Z_]+' | sort -u |
		grep -vxE 'LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH' | while IFS= read -r name; do
		grep -q "^$name|" "$TMP/list" || echo "$name"
	done
}

expanded >"$TMP/list"
t "the list has some" test "$(wc -l <"$TMP/list")" -gt 7
t "the page has each, and no other" diff <(cut -d'|' -f1 "$TMP/list") <(section Users 'The software driver')
t "the page says what each may be" prints "" unsaid
t "one file of the layers asks the environment, and a command for its terminal" prints \
	"api/cmd/say.c
lib/config.c" askers "${layers[@]}"
t "commands ask for nothing else" prints 'getenv("NO_COLOR")
getenv("TERM")' of_commands
t "the software driver asks for its own" prints "" of_sim
t "the Python package asks for what is in the list" prints "" of_python
# The same for what is counted.
counted() { grep -ohE '"foundry_[a-z_]+"' lib/telemetry.def store/metrics.c | tr -d '"' | sort -u; }
# shellcheck disable=SC2016 # those are reStructuredText's
t "the page of telemetry has every number, and no other" diff <(counted) \
	<(grep -oE '^``foundry_[a-z_]+``' Documentation/design/telemetry.rst | tr -d '`' | sort -u)
t_done
