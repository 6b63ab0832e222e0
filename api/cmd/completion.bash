# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completion for foundry-store: it knows itself what may come next.
_foundry_store() {
	local line=${COMP_LINE:0:COMP_POINT} cut words=()
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=('')
	mapfile -t COMPREPLY < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
	if [[ ${COMPREPLY[0]-} == :files ]]; then
		COMPREPLY=()
		compopt -o default 2>/dev/null
		return 0
	fi
	# Readline replaces only what stands behind the last of its word breaks.
	cut=${words[-1]}
	until [[ -z $cut || ($cut == *[@=:] && $COMP_WORDBREAKS == *"${cut: -1}"*) ]]; do
		cut=${cut%?}
	done
	COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
complete -F _foundry_store foundry-store
