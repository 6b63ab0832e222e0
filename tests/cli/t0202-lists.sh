#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store's lists: help, the manual page, the JSON page and completion have every
# command, option and exit status.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

page=$ROOT/Documentation/man/foundry-store.1
json_page=$ROOT/Documentation/api/store-json.rst
foundry-store __table >table
commands=$(sed -n 's/^command //p' table)
names=$(cut -d' ' -f1 <<<"$commands")
# These print the manual page as plain text, and its part on one command.
sed -E 's/\\f[A-Z]//g; s/\\-/-/g; s/\\&//g' "$page" >page
part_of() { awk -v c="$1" '/^\.S[SH] / { on = ($1 == ".SS" && $2 == c) } on' page; }

# lacking: prints commands and their options that the page's parts do not name
lacking() {
	local command option
	while read -r command option; do
		part_of "$command" | grep -q -- "$option" || echo "$command $option"
	done < <(sed -n 's/^takes //p' table)
}
# options_lacking LINE...: prints options of all commands that the page's OPTIONS lacks
options_lacking() {
	local letter name arg
	while read -r letter name arg; do
		[ "$letter" != -- ] || letter=
		grep -E '^\.(BR|B|BI) ' page | grep -q -- "$letter.*${name}[\" ]*" ||
			echo "$letter $name $arg"
	done < <(sed -n 's/^option //p' table)
}

t "the list has commands" test "$(wc -l <<<"$names")" -gt 6
t "the page has every command, with its operands, and no other" prints "$(sort <<<"$commands")" \
	bash -c "sed -n 's/^\.SS //p' page | sort"
t "the page's parts name every operand and option of their commands" prints "" lacking
t "the page has every option" prints "" options_lacking
t "the page has every exit status, and no other" prints "$(sed -n 's/^exit //p' table)" \
	bash -c "awk '/^\.SH / { on = /EXIT STATUS/ } on' page | sed -n 's/^\.B \([0-9]*\)$/\1/p'"
t "the page has all operands" prints "" bash -c "
	foundry-store __table | sed -n 's/^command [a-z]*//p' | grep -oE '[A-Z]+' | sort -u |
		while read -r w; do
		grep -qE \"^\.I \$w\$\" page || echo \$w; done"
t "help environment lists each variable's values" bash -c \
	"foundry-store help environment | grep -A2 '^FOUNDRY_LOG$' |
		grep -qxF '    Allowed: error, warn, info or debug.'"
t "the JSON page has every command" prints "$(grep -vxE 'help|dump|metrics' <<<"$names" | sort)" \
	bash -c "grep -B1 -E '^=+$' '$json_page' | grep -xE '[a-z]+' | sort"
for name in $names; do
	t "help has $name" bash -c "foundry-store --help | grep -qE '^  $name( |$)'"
	t "help of $name" bash -c "foundry-store help $name | grep -q '^usage: foundry-store $name'"
	t "$name --help is the same" prints "$(foundry-store help "$name")" foundry-store "$name" \
		--help
done
if man --version >man-version 2>&1; then
	t "man finds no fault" prints "" bash -c \
		"LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l '$page' 2>&1 >rendered"
fi
if mandoc -Thtml </dev/null >/dev/null 2>&1; then
	t "mandoc finds no fault" prints "" mandoc -Tlint -Werror "$page"
fi

# --- completion ---

export FOUNDRY_STORE=$TMP/s COMP_LINE COMP_POINT
echo one >one
echo two >two
id=$("$store_image" s a/one@h200 one)
"$store_image" s k=v two >id2
completes() { # LINE: prints the completions that bash would offer, one a line
	bash --norc -c '. "$ROOT/api/cmd/completion.bash"; COMP_LINE=$1 COMP_POINT=${#1};
		_foundry_store
		[ ${#COMPREPLY[@]} = 0 ] || printf "%s\n" "${COMPREPLY[@]}"' - "$1"
}
t "complete: every command" prints "$names" completes "foundry-store "
t "complete: the beginning of one" prints "show" completes "foundry-store sho"
t "complete: nothing after an unknown command" prints "" completes "foundry-store frob "
t "complete: an option" prints "--dry-run" completes "foundry-store gc --d"
t "complete: no option of another command" prints "" completes "foundry-store ls --dry"
t "complete: options before the command" prints "--store" completes "foundry-store --st"
t "complete: refs" prints "$(printf 'a/one@h200\nk=v')" completes "foundry-store rm "
t "complete: more refs" prints "k=v" completes "foundry-store rm a/one@h200 k"
t "complete: after a word break" prints "h200" completes "foundry-store show a/one@"
t "complete: an image's id" prints "${id:0:16}" completes "foundry-store show ${id:0:5}"
t "complete: no chunk's id for an operand that is an image" prints "" completes \
	"foundry-store tag $(id_of one | cut -c 1-9)"
t "complete: a chunk's id" prints "$(id_of one | cut -c 1-16)" completes \
	"foundry-store show $(id_of one | cut -c 1-9)"
t "complete: another store" prints "" completes "foundry-store -s nowhere show "
t "complete: file names for the store's directory" prints ":files" foundry-store __complete -- -s ""
t "complete: an option of verify" prints "--fast" completes "foundry-store verify --f"
t "complete: a command to help" prints "verify" completes "foundry-store help ver"
t "complete: descriptions" prints "$(printf 'verify\tcheck every object, link and ref')" \
	foundry-store __complete --long -- ver
t "complete: no description of a ref" prints "k=v" foundry-store __complete --long -- show k

# --- completion in the other shells themselves ---

if fish --version >/dev/null 2>&1; then
	fish_offers() { # LINE: what fish offers, without descriptions
		fish --no-config -c 'source $argv[1]; complete -C $argv[2]' \
			"$ROOT/api/cmd/completion.fish" "$1" | cut -f1
	}
	t "fish: a command" prints "show" fish_offers "foundry-store sho"
	t "fish: refs" prints "$(printf 'a/one@h200\nk=v')" fish_offers "foundry-store rm "
	t "fish: a ref with a sign" prints "a/one@h200" fish_offers "foundry-store show a/one@"
	t "fish: an option" prints "--dry-run" fish_offers "foundry-store gc --d"
	t "fish: a description" grep -q "check every object" <(fish --no-config -c \
		'source $argv[1]; complete -C $argv[2]' "$ROOT/api/cmd/completion.fish" \
		"foundry-store verif")
	t "fish: files" prints "page" bash -c "$(declare -f fish_offers)
		fish_offers 'foundry-store show a -o pag' | grep -x page"
fi
if zsh --version >/dev/null 2>&1; then
	cat >zsh.py <<-'END'
	import os, pty, re, select, sys, time
	pid, fd = pty.fork()
	if not pid:
	    os.environ.update(PS1="", TERM="dumb", ZDOTDIR=os.getcwd())
	    os.execvp("zsh", ["zsh", "-f", "-i"])
	def wait(mark):
	    text, end = "", time.time() + 30
	    while mark not in text and time.time() < end:
	        if select.select([fd], [], [], 0.2)[0]:
	            text += os.read(fd, 4096).decode()
	    return text
	os.write(fd, f'''PS1= PS2=; setopt nobeep; autoload -U compinit; compinit -D -u
	source {os.environ["ROOT"]}/api/cmd/completion.zsh
	buffer() {{ print -r -- "<<$BUFFER>>"; BUFFER=; zle accept-line; }}; zle -N buffer
	bindkey '^X' buffer; echo rea''dy
	'''.encode())
	wait("ready")
	time.sleep(0.5)
	os.write(fd, sys.argv[1].encode() + b"\t\x18")
	print(re.findall("<<(.*?) *>>", wait(">>"))[0])
	os.write(fd, b"exit\n")
	END
	zsh_types() { timeout 60 python3 zsh.py "$1"; } # what the line is after a tab
	t "zsh: a command" prints "foundry-store verify" zsh_types "foundry-store ver"
	t "zsh: a ref" prints "foundry-store show k=v" zsh_types "foundry-store show k"
	t "zsh: a ref with a sign" prints "foundry-store rm a/one@h200" zsh_types \
		"foundry-store rm a/one@"
	t "zsh: an option" prints "foundry-store gc --dry-run" zsh_types "foundry-store gc --d"
	t "zsh: a file" prints "foundry-store report k=v -o page" zsh_types \
		"foundry-store report k=v -o pag"
fi
t_done
