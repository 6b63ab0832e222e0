#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rules for the text of the tree's files: licences, lengths, indentation and words.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT"

code=('*.c' '*.h' '*.def' '*.map' '*.S' '*.cu' '*.py' '*.sh' GNUmakefile .ci/run .ci/setup \
	tests/run tests/chroot/{run,wheel})
mapfile -t sources < <(tree_files "${code[@]}")
mapfile -t c_files < <(tree_files '*.c')
mapfile -t own_files < <(printf '%s\n' "${c_files[@]}" | grep -v '^tests/')
mapfile -t headers < <(tree_files '*.h')
mapfile -t loaders < <(tree_files 'graph/*.c' 'image/*.c' 'run/*.c' 'api/*.c' 'mm/*.c' 'store/*.c' |
	grep -v '^graph/module[.]c$')
mapfile -t all_files < <(tree_files '*' '.ci/*' | grep -vE '^(LICENSE|tests/golden/)')

# lines REGEX FILE...: prints "file:line:text" for lines that match; no match is no error
lines() {
	local regex=$1
	shift
	grep -nHIE -- "$regex" "$@" || true
}

without_licence() {
	comm -23 <(printf '%s\n' "$@" | sort) \
		<(awk 'FNR > 3 { nextfile }
			/SPDX-License-Identifier: Apache-2[.]0/ { print FILENAME }' \
			"$@" | sort)
}

# longer LIMIT FILE...: prints functions with more lines, from the brace at the left margin to its
# end
longer() {
	local limit=$1
	shift
	awk -v limit="$limit" '
		/^{/ { start = FNR; name = last }
		/^}/ && start {
			n = FNR - start - 1
			if (n > limit) print FILENAME ":" start ": " n " lines: " name
			start = 0
		}
		{ last = $0 }' "$@"
}

# big LIMIT FILE...: prints files with more lines
big() {
	local limit=$1
	shift
	wc -l "$@" | awk -v limit="$limit" \
		'$2 != "total" && $1 > limit { print $2 ": " $1 " lines" }'
}

# asked: prints each of Foundry's environment variables that code reads
asked() {
	grep -hoE '(getenv|environ(\.get)?)[[(]+"(FOUNDRY|FDRY)_[A-Z0-9_]+"' "${sources[@]}" |
		grep -oE '(FOUNDRY|FDRY)_[A-Z0-9_]+' | sort -u
}
undocumented() {
	asked | while IFS= read -r name; do
		grep -q "\`\`$name\`\`" Documentation/api/environment.rst ||
			echo "$name: not in Documentation/api/environment.rst"
	done
}

# The patterns are written so that this file does not match them.
homes='(^|[^a-zA-Z0-9_.])/(hom[e]|roo[t]|wor[k]|User[s])/'
hosts='pyp[i][.]org|pythonhosted[.]or[g]|crates[.]i[o]|npmjs[.](org|co[m])|registry[.]npm'
hosts+='|ghc[r][.]io|quay[.]i[o]|docker[.]i[o]'
unfinished='\<(TOD[O]|FIXM[E]|XX[X]|HAC[K])\>|[nN]ot (yet )?implemente[d]|placeholde[r]'

t "sources were found" test "${#c_files[@]}" -gt 5
t "every source file names its licence" prints "" without_licence "${sources[@]}"
t "no function is longer than 70 lines" prints "" longer 70 "${c_files[@]}"
t "no C file is longer than 700 lines" prints "" big 700 "${own_files[@]}"
t "no C file of tests is longer than 800 lines" prints "" big 800 "${c_files[@]}"
t "no line ends in blanks" prints "" lines '[[:blank:]]+$' "${all_files[@]}"
t "C is indented with tabs" prints "" lines '^ +[^ *]' "${c_files[@]}" "${headers[@]}"
t "no line of C is longer than 150 bytes" prints "" lines '^.{151}' "${c_files[@]}" "${headers[@]}"
t "no path of anybody's machine" prints "" lines "$homes" "${all_files[@]}"
t "no registry's host name" prints "" lines "$hosts" "${all_files[@]}"
t "no mark of unfinished work" prints "" lines "$unfinished" "${sources[@]}"
t "every variable that code reads is documented" prints "" undocumented
t "modules are loaded by graph/module.c alone" prints "" lines \
	'fdry_call(_raw)?\([^,]*, cu(Module|Library)Load' "${loaders[@]}"
t_done
