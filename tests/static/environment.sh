#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Environment variables have one list (lib/config.def), one file that reads them, and one page that
# agrees with both.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

page=Documentation/api/environment.rst

# expanded: prints "name|type|allowed" for each line of the list, as the compiler sees it
expanded() {
	printf '%s %s\n' '#define FDRY_CONFIG(id, name, type, fallback, allowed, meaning)' \
		'@ name | #type | allowed' '#include' '"lib/config.def"' |
		"${CC:-cc}" -E -P -I. -x c - | tr '\n' ' ' | tr '@' '\n' |
		sed -E 's/"//g; s/ *\| */|/g; s/^ *//; s/ *$//' | grep . | LC_ALL=C sort -t'|' -k1,1
}

# section FIRST LAST: prints the variables with an entry between these headlines of the page
section() {
	sed -n "/^$1\$/,/^$2\$/p" $page | grep -oE '^``[A-Z][^:]*$' | grep -oE '[A-Z][A-Z0-9_]+' |
		LC_ALL=C sort
}

# entry NAME: prints the variable's entry in the page
entry() {
	awk -v name="\`\`$1\`\`" \
		'/^[^ ]/ && index($0, name) { on = 1; next } /^[^ ]/ { on = 0 } on' $page
}

# unsaid: prints allowed values of variables that their entries lack
unsaid() {
	local name type allowed word
	while IFS='|' read -r name type allowed; do
		case $type in FLAG|COUNT|SIZE|CHOICE) ;; *) continue ;; esac
		for word in ${allowed//,/}; do
			[[ $word =~ ^(or|to)$ ]] || entry "$name" | grep -q "\`\`$word\`\`" ||
				echo "$name: $word"
		done
	done <"$TMP/list"
}

# Files of the layers that read the environment themselves. The software driver is not part of the
# library; commands read the variables that every program on a terminal reads.
askers() { grep -lE "\b(secure_)?getenv\([^)]|\benviron(\[|;)" "$@" | sort; }
mapfile -t layers < <(tree_files '*.c' '*.h' |
	grep -E '^(lib|arch|mm|graph|store|hook|image|run|api)/' | grep -v '^arch/sim/')

# of_sim: prints variables that the software driver reads and that are not its own
of_sim() {
	tree_files 'arch/sim/*.c' | xargs grep -hoE 'getenv\([^)]*\)' | grep -v '"FDRY_SIM_' || true
}
# of_commands: prints the variables that the commands read
of_commands() { tree_files 'api/cmd/*.c' | xargs grep -hoE 'getenv\([^)]*\)' | sort -u; }
# of_python: prints variables that the package reads and the list lacks, except those that name
# other packages' folders and libraries
of_python() {
	tree_files 'api/python/*.py' | xargs grep -hoE 'environ(\.get)?[[(]+"[A-Z_]+"' |
		grep -oE '[A-Z][A-Z_]+' | sort -u |
		grep -vxE 'LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH' |
		grep -vxE 'TVM_FFI_CACHE_DIR|FLASHINFER_WORKSPACE_BASE|SGLANG_MOE_CONFIG_DIR' |
		grep -vxE 'DG_JIT_CACHE_DIR|VLLM_DEEP_GEMM_WARMUP' |
		grep -vE '^NCCL_(CUMEM_ENABLE|GRAPH_REGISTER|NVLS_ENABLE|RUNTIME_CONNECT)$' |
		while IFS= read -r name; do
		grep -q "^$name|" "$TMP/list" || echo "$name"
	done
}

expanded >"$TMP/list"
t "the list has variables" test "$(wc -l <"$TMP/list")" -gt 7
t "the page has each variable, and no other" diff <(cut -d'|' -f1 "$TMP/list") \
	<(section Users 'The software driver')
t "the page has each variable's allowed values" prints "" unsaid
t "one file of the layers reads the environment, and a command for its terminal" prints \
	"api/cmd/say.c
lib/config.c" askers "${layers[@]}"
t "commands read no other variables" prints 'getenv("NO_COLOR")
getenv("TERM")' of_commands
t "the software driver reads only its own variables" prints "" of_sim
t "the Python package reads only variables of the list" prints "" of_python
# The counters of telemetry are checked in the same way.
counted() { grep -ohE '"foundry_[a-z_]+"' lib/telemetry.def store/metrics.c | tr -d '"' | sort -u; }
# shellcheck disable=SC2016 # the backquotes are reStructuredText's
t "the page of telemetry has every counter, and no other" diff <(counted) \
	<(grep -oE '^``foundry_[a-z_]+``' Documentation/design/telemetry.rst | tr -d '`' | sort -u)
t_done
