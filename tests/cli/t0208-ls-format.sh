#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of foundry-store ls --format and --filter, of the times in ls and show, and of the counts of
# loads in stat.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=store.sh
. "$ROOT/tests/cli/store.sh"

in_memory
seal() { "$BUILD/tests/cli/store_seal" "$FOUNDRY_STORE" "$1"; }
seq 1 3000 >w
a=$(printf '%s\n' 'fact fdry.gpu.arch sm_90' 'fact model llama' 'content w' | seal m/a)
b=$(printf '%s\n' 'fact fdry.gpu.arch sm_80' 'fact model gpt' 'content w' | seal m/b)
foundry-store pin -q m/b
used=$FOUNDRY_STORE/used

# --- templates ---

t "a template prints a line for each ref" prints \
	"$(printf 'm/a\t%s sm_90 0 false\nm/b\t%s sm_80 0 true' "${a:0:12}" "${b:0:12}")" \
	foundry-store ls --format '{{.Name}}\t{{.ShortID}} {{ .GPU }} {{.Graphs}} {{.Pinned}}'
t "a template prints facts" prints "$(printf 'llama-\ngpt-')" foundry-store ls --format \
	'{{.Fact.model}}-{{.Fact.none}}'
t "a template prints the sizes that JSON has" prints "$(foundry-store ls --json | python3 -c '
import json, sys
for r in json.load(sys.stdin)["refs"]:
    print(r["id"], r["stored"], r["unique_stored"], r["bytes"])')" \
	foundry-store ls --format '{{.ID}} {{.SizeBytes}} {{.UniqueBytes}} {{.UnpackedBytes}}'
t "a template with --reverse" prints "$(printf 'm/b\nm/a')" foundry-store ls -r --format '{{.Name}}'
t "a backslash that is no escape stays" prints "\\x\\" foundry-store ls m/a --format "\\x\\"
t "an unknown field lists the fields" says_only 2 \
	"no field 'Nam' \(did you mean Name\?\); the fields are Name, ShortID, .*Fact.KEY; see" \
	foundry-store ls --format '{{.Nam}}'
for bad in '{{Name}}' '{{.Name' '{{}}'; do
	t "the template '$bad' is wrong usage" says_only 2 'must have the form \{\{\.Name\}\}' \
		foundry-store ls --format "$bad"
done
t "a template and JSON are wrong usage" exits 2 foundry-store ls --json --format '{{.Name}}'
t "a template and objects are wrong usage" exits 2 foundry-store ls -O --format '{{.Name}}'
t "the format of a graph is no template" says_only 2 "there is no format '\{\{.Name\}\}'" \
	foundry-store graph m/a 1 -f '{{.Name}}'

# --- filters ---

filters() { # REFS FILTER...: the filters leave these refs, also with --json
	local want=$1 words=()
	shift
	for f; do words+=(--filter "$f"); done
	prints "$want" bash -c 'foundry-store ls -q "$@" | xargs' - "${words[@]}" &&
		json "' '.join(r['ref'] for r in j['refs']) == '$want'" foundry-store ls --json \
			"${words[@]}"
}
t "filter by name" filters m/a 'name=*a'
t "filter by id" filters m/b "id=${b:0:7}"
t "filter by GPU" filters m/b gpu=sm_8?
t "filter by fact" filters m/a 'fact.model=ll*'
t "filter by a fact that no image has" filters "" fact.none=x
t "filter: pinned" filters m/b pinned=true
t "filter: not pinned" filters m/a pinned=false
t "filter: not broken" filters "m/a m/b" broken=false
t "filter by a graph's key" filters "" graph=1
t "several keys must all match" filters "" gpu=sm_90 pinned=true
t "several values of a key are alternatives" filters "m/a m/b" gpu=sm_90 gpu=sm_80 name='m/*'
t "filter: used since" filters "m/a m/b" used-since=1h
t "filter: used before" filters "" used-before=1h
t "filter: created before a day" filters "m/a m/b" created-before=2999-01-01
t "filter: created since a day" filters "" created-since=2999-01-01
t "filters and patterns must both match" prints m/a foundry-store ls -q 'm/*' --filter pinned=false
t "an unknown filter's error suggests a key" says_only 2 \
	"no filter 'usedsince' \(did you mean used-since\?\); use name, id" foundry-store ls \
	--filter usedsince=1h
t "a filter without a value is wrong usage" \
	says_only 2 "the filter 'name' is not KEY=VALUE" foundry-store ls --filter name
t "a filter that is neither true nor false is wrong usage" \
	says_only 2 "pinned must be true or false, not 'yes'" foundry-store ls --filter pinned=yes
t "a filter with an invalid time is wrong usage" \
	says_only 2 "'soon' is not a time; write a day" foundry-store ls --filter used-since=soon
t "a day that no month has is wrong usage" \
	says_only 2 "'2026-02-31' is not a time; write a day" foundry-store ls \
	--filter created-since=2026-02-31
t "a leap day is a day" filters "m/a m/b" created-since=2024-02-29
t "a filter with an invalid key is wrong usage" \
	says_only 2 "'-1' is not a graph's key" foundry-store ls --filter graph=-1
many=()
for _ in {1..17}; do many+=(--filter name=x); done
t "too many filters are wrong usage" \
	says_only 2 'more than 16 filters' foundry-store ls "${many[@]}"
t "a filter of objects is wrong usage" exits 2 foundry-store ls -O --filter name=x

# --- times ---

now=$(date +%s)
t "a seal creates and uses an image" json "all(abs(r[k] - $now) < 100 for r in j['refs']
	for k in ('created', 'used'))" foundry-store ls --json
t "show: the times" json "abs(j['created'] - $now) < 100 and j['used'] == j['created']" \
	foundry-store show --json m/a
t "show: the times as text" bash -c "foundry-store show m/a |
	grep -Eq '^created 20[0-9-]{8}T[0-9:]{8}Z$'"
cp "$used" kept
printf '%s %s\nmade %s %s\n' "$a" 1000000000 "$a" 900000000 >"$used"
t "ls prints ages" bash -c "foundry-store ls m/a | grep -Eq ' [0-9]+ years ago +[0-9]+ years ago\$'"
t "a template prints dates" prints "1985-11-05T00:00:00Z 2001-09-09T01:46:40Z" bash -c \
	"sed -i 's/900000000/499996800/' '$used' &&
	foundry-store ls m/a --format '{{.Created}} {{.Used}}'"
t "sorted by use: unknown times come last" prints "$(printf 'm/a\nm/b')" foundry-store ls -q \
	--sort used
t "a store of an older version has no time of creation" bash -c \
	"sed -i '/made/d' '$used' && foundry-store ls m/a --json | grep -q '\"used\": 1000000000' &&
	! foundry-store ls m/a --json | grep '\"created\"' &&
	! foundry-store show m/a | grep ^created"
t "an unknown time matches no filter" filters "" name=m/b used-before=1h
rm "$used"
t "without the file, times are unknown" prints "- -" foundry-store ls m/a --format \
	'{{.CreatedSince}} {{.UsedSince}}'
printf 'made %s 99999999999999999999 x\nhit x\nsum 1\nmissed 1 1\n%0300d\n' "$a" 0 >"$used"
t "lines of other forms count nothing" json "j['loads']['since'] == 0" foundry-store stat --json
foundry-store export -q -o pack --all
t "an import creates images" bash -c "foundry-store -s imported import -q pack &&
	foundry-store -s imported ls --json | grep -c '\"created\"' | grep -qx 2"

# --- counts ---

FOUNDRY_STORE=$shm/demo
vecadd=$BUILD/examples/vecadd
counts() { # EXPRESSION over l, the loads of stat
	json "(lambda l: $1)(j['loads'])" foundry-store stat --json
}
"$vecadd" capture -s "$FOUNDRY_STORE" -m "$BUILD/sim/kernels.cubin" >capture.out
t "a capture is counted" counts "l['captures'] == 1 and l['hits'] == 0 and l['since'] > 0"
"$vecadd" load -s "$FOUNDRY_STORE" >load.out
"$vecadd" load -s "$FOUNDRY_STORE" >load.out
t "hits are counted, with bytes and the time saved" counts "l['hits'] == 2 and l['misses'] == 0 and
	l['bytes'] > 0 and l['microseconds'] > 0 and l['saved_hits'] == 2"
foundry-store selftest nobody >miss.out 2>&1 || true
t "a miss is counted with its reason" counts "l['misses'] == 1 and
	l['missed'] == [{'error': 'FDRY_E_NOENT', 'meaning': 'no such object or ref', 'count': 1}]"
t "stat prints hits, misses and captures" \
	bash -c "foundry-store stat | grep -A8 '^loads' | tr '\n' ';' |
	grep -Eq '^loads +3 since .*;hits +2 \(66.7 %\);misses +1;  1 +no such .*;captures +1;'"
id=$(foundry-store ls --format '{{.ID}}')
seq -f "hit $id 1000000000 10 1000 %g" 12000 >>"$FOUNDRY_STORE/used"
counts_before=$(foundry-store stat --json | sed -n '/"loads"/,$p')
"$vecadd" load -s "$FOUNDRY_STORE" >load.out
"$vecadd" load -s "$FOUNDRY_STORE" >load.out
t "the file used is shortened" test "$(stat -c %s "$FOUNDRY_STORE/used")" -lt 2000
t "shortening keeps the counts" counts "l['hits'] == 12004 and l['captures'] == 1 and
	l['misses'] == 1 and l['bytes'] >= 120000 and l['saved_hits'] == 12004"
t "the counts were as high before" grep -q '"hits": 12002' <<<"$counts_before"
t "shortening keeps the time of creation" json "'created' in j['refs'][0]" foundry-store ls --json
t "--zero begins again" bash -c "foundry-store stat --zero | grep -Eq '^loads +0 since'"
t "stat --zero sets all counts to 0" \
	counts "l['hits'] == l['misses'] == l['captures'] == 0 and l['since'] > 0"
"$vecadd" load -s "$FOUNDRY_STORE" >load.out
t "hits after --zero are counted" counts "l['hits'] == l['saved_hits'] == 1"
rm "$FOUNDRY_STORE/used" && mkdir "$FOUNDRY_STORE/used"
t "--zero that cannot be written fails" fails 'cannot write the store.s file used' foundry-store \
	stat --zero
t "a load works if the file used cannot be written" "$vecadd" load -s "$FOUNDRY_STORE"
t_done
