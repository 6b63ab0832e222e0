# SPDX-License-Identifier: Apache-2.0
#
# Completion for foundry-store in fish: it knows itself what may come next.
function __foundry_store_complete
    set -l typed (commandline -opc)
    set -l word (commandline -ct)
    set -l found ($typed[1] __complete --long -- $typed[2..-1] "$word" 2>/dev/null)
    if test "$found[1]" = :files
        __fish_complete_path "$word"
    else
        printf '%s\n' $found
    end
end
complete -c foundry-store -f -a '(__foundry_store_complete)'
