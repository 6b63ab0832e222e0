#compdef foundry-store
# SPDX-License-Identifier: Apache-2.0
#
# Completion for foundry-store in zsh: it knows itself what may come next.
_foundry_store() {
	local line
	local -a typed found shown
	typed=("${(@Q)words[2,CURRENT - 1]}" "${(Q)PREFIX}")
	for line in "${(@f)$("${(Q)words[1]}" __complete --long -- "${typed[@]}" 2>/dev/null)}"; do
		[[ -n $line ]] || continue
		found+=("${line%%$'\t'*}")
		shown+=("${line/$'\t'/  -- }")
	done
	if [[ ${found[1]-} == :files ]]; then
		_files
		return
	fi
	(( $#found )) || return 1
	if [[ ${shown[1]} == *'  -- '* ]]; then
		compadd -l -d shown -a -- found
	else
		compadd -a -- found
	fi
}
compdef _foundry_store foundry-store
