#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of every command of foundry-store: lost output is an error, the JSON holds errors, and
# messages name the wrong words.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

export FOUNDRY_STORE=$TMP/s
seq 1 3000 >f1
seq 2 3000 >f2
"$store_image" s m/a f1 f2 >/dev/null
"$store_image" s m/b f1 >/dev/null
foundry-store export -o pack m/a >/dev/null
foundry-store dump -o dump

# Each line is for one command: its exit status with --json if there is no store, its operands, and
# whether it is also run with output that cannot be written. Commands that remove something are dry
# runs. Commands for registries fail before they print.
commands() {
	cat <<-'END'
	3 yes ls
	3 yes show m/a
	3 yes diff m/a m/b
	3 yes du
	3 yes stat
	3 yes init /dev/null/x
	3 yes metrics
	3 yes tag m/a m/c
	3 yes rm -n m/a
	3 yes pin m/a
	3 yes unpin m/a
	3 yes limit
	3 yes evict -n 9K
	3 yes gc -n
	3 yes compact
	3 yes verify
	3 yes repair
	3 yes export m/a
	0 yes import -n pack
	3 yes dump
	0 yes undump -n dump
	3 no graph m/a 1
	3 no report m/a -o page
	3 no selftest m/a
	3 no sign m/a oci://no-repository
	3 no push m/a oci://no-repository
	0 no pull oci://no-repository
	0 no tags oci://no-repository
	0 no unpush oci://no-repository
	0 no prune oci://no-repository
	0 yes help
	END
}

full() { "$@" >/dev/full; }
t "every command is tried" prints "$(foundry-store __table | sed -n 's/^command \([a-z]*\).*/\1/p' |
	sort)" \
	bash -c "$(declare -f commands); commands | awk '{ print \$3 }' | sort"
while read -r _ written command words; do
	[ "$written" = yes ] || continue
	[ "$command" != init ] || words=
	# shellcheck disable=SC2086 # words are meant
	t "$command fails if its output cannot be written" says_only 5 \
		'cannot write the (output|pack): No space left' full foundry-store "$command" $words
done < <(commands)
t "--version fails if its output cannot be written" says_only 5 'cannot write the output' full \
	foundry-store --version
t "dump to a full device fails" says_only 5 'cannot write /dev/full: No space left' foundry-store \
	dump -o /dev/full
t "a failed dump does not remove a device" test -c /dev/full
t "dump to a file in a missing folder fails" \
	says_only 2 'cannot write no/file: No such file' foundry-store dump -o no/file
t "an earlier error has precedence over one of the output" says_only 3 "no ref 'nobody'" full \
	foundry-store show nobody
mkfifo pipe
exec 3<>pipe 4>pipe 3>&- # 4 is a pipe without a reader
silent() { exits 9 "$@" >&4 2>err; cat err; [ ! -s err ]; }
t "a pipe whose reader has ended gives a status without a message" silent foundry-store ls
t "a pipe whose reader ends within a long output gives the same" silent foundry-store dump
exec 4>&-

# error_of STATUS COMMAND...: the command exits with this status, and its document has the error
# that it prints
error_of() {
	local want=$1 rc=0
	shift
	"$@" >out 2>err || rc=$?
	cat out err
	[ $rc = "$want" ] || { echo "status $rc, not $want"; return 1; }
	python3 - "$want" <<-'END'
		import json, sys
		e = json.load(open("out"))["error"]
		said = open("err").readline().removeprefix("foundry-store: ").rstrip("\n")
		assert e == {"status": int(sys.argv[1]), "text": said}, (e, said)
	END
}
while read -r status _ command words; do
	# shellcheck disable=SC2086 # words are meant
	[ "$status" = 0 ] || t "$command --json: no store" error_of "$status" foundry-store -s \
		nowhere --json "$command" $words
done < <(commands)
t "import --json of a file that is not a pack fails" error_of 3 foundry-store import --json nothing
# as_documented EXPRESSION COMMAND...: the same as json, of a command that fails
as_documented() {
	local expr=$1
	shift
	"$@" >out || true
	python3 "$ROOT/tests/cli/json_documented.py" "$ROOT/Documentation/api/store-json.rst" "$2" \
		"$expr" <out
}
t "an error's document is as documented" as_documented "j['error']['status'] == 3" foundry-store \
	show --json nobody
t "an error behind the beginning is the last key" bash -c \
	"foundry-store rm -jn m/a nobody m/b | python3 -c 'import json, sys
j = json.load(sys.stdin); assert [r[\"ref\"] for r in j[\"removed\"]] == [\"m/a\", \"m/b\"]
assert list(j)[-1] == \"error\"'"
t "an error as the last key is as documented" as_documented "j['error']['status'] == 3" \
	foundry-store rm -jn m/a nobody
t "without an error, the document has no such key" json "'error' not in j" foundry-store rm -jn m/a
t "damage that verify finds is no error key" json "'error' not in j" foundry-store verify -j
t "a wrong option before --json is reported as JSON" error_of 2 foundry-store --frob ls --json
t "an unknown command with --json is reported as JSON" error_of 2 foundry-store frob --json
t "too many operands with --json are reported as JSON" error_of 2 foundry-store stat --json x
t "graph --json into a file fails for an unknown graph" bash -c \
	"! foundry-store graph -j m/a 1 -o g.json 2>/dev/null"

t "an unknown option is named" says_only 2 'there is no option --frob; see' foundry-store ls \
	--frob=3
t "an option that is mistyped is suggested" says_only 2 \
	'there is no option --revesre \(did you mean --reverse\?\); see' foundry-store ls --revesre
t "a command that is mistyped is suggested" says_only 2 \
	'there is no command shwo \(did you mean show\?\); see' foundry-store shwo
t "the beginning of a command is suggested" says_only 2 \
	'there is no command insp \(did you mean init or inspect\?\); see' foundry-store insp
t "no command is suggested for any word" says_only 2 'there is no command zzzzz; see' \
	foundry-store zzzzz
t "a command of the Python package is suggested" says_only 2 \
	'there is no command doctor \(did you mean python3 -m foundry doctor\?\); see' \
	foundry-store doctor
t "help names the command that examines a machine" bash -c \
	"foundry-store --help | grep -q 'python3 -m foundry doctor'"
t "help suggests a command" says_only 2 '\(did you mean verify\?\); see' foundry-store help verfy
for c in 'show n/aa' 'rm n/aa' 'pin n/aa' 'du n/aa' 'export -o x n/aa' 'tag n/aa x' \
	'selftest n/aa'; do
	# shellcheck disable=SC2086 # words
	t "${c%% *}: a ref that is mistyped is suggested" says_only 3 \
		"'n/aa'.*\(did you mean m/a.*\?\)" foundry-store $c
done
foundry-store -q tag m/a llama/decode@h200
t "a part of a ref suggests it" says_only 3 \
	"no ref 'decode'.*\(did you mean llama/decode@h200\?\)" foundry-store show decode
foundry-store -q rm llama/decode@h200
t "no ref is suggested for any word" says_only 3 \
	"no ref 'nobody' in the store; see foundry-store ls" foundry-store show nobody
# Ages may change from one call to the next.
t "an alias is its command" prints "$(foundry-store ls --json)" foundry-store list --json
t "an alias has the options and the JSON of its command" prints "$(foundry-store show --json m/a)" \
	foundry-store inspect -j m/a
t "help of an alias" prints "$(foundry-store help ls)" foundry-store help list
t "without arguments, help is printed" prints "$(foundry-store --help)" foundry-store
t "options without a command are wrong usage" says_only 2 'name a command; see' foundry-store -q
t "an unknown letter is named" says_only 2 'there is no option -x; see' foundry-store ls -qx
t "an ambiguous abbreviation lists the options" says_only 2 \
	'option --re is ambiguous: it may be --reverse, --reach; see' foundry-store ls --re
t "an unambiguous abbreviation is accepted" prints "$(foundry-store ls -r)" foundry-store ls --rev
t "an option without its argument is named" says_only 2 \
	'option --sort needs an argument: name\|size' foundry-store ls --sort
t "a letter without its argument is named" says_only 2 'option -o needs an argument: FILE; see' \
	foundry-store dump -qo
t "an option with an argument that it lacks is named" says_only 2 \
	'option --json has no argument; see' foundry-store ls --json=1
t "the first of several faults is reported" says_only 2 'there is no option --frob; see' \
	foundry-store ls --frob -x
t "evict without a size and without a limit is wrong usage" \
	says_only 2 'the store has no limit; name a size' foundry-store evict
t_done
