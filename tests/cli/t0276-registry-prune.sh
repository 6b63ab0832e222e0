#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Listing the tags of a repository, and removing images from it: a manifest that others need stays.
# shellcheck disable=SC2154 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 90000 /dev/urandom >a
head -c 50000 /dev/urandom >b
head -c 70000 /dev/urandom >c
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=0
for name in a b c; do "$store_image" s m/$name $name a >/dev/null; done
openssl genpkey -algorithm ED25519 -out key.pem 2>/dev/null
openssl pkey -in key.pem -pubout -out key.pub
registry_start main
host=127.0.0.1:$main_port
at=oci+http://$host/models
push() { foundry-store push --private -q "m/$1" "$at:$2" "${@:3}"; }
manifest() { curl -sf -H "Accept: application/vnd.oci.image.${2:-manifest}.v1+json" \
	"http://$host/v2/models/manifests/$1"; }
# put TAG TYPE FILE
put() {
	curl -sf -o /dev/null -X PUT --data-binary "@$3" \
		-H "Content-Type: application/vnd.oci.image.$2.v1+json" \
		"http://$host/v2/models/manifests/$1"
}
digest_of() { sha256sum <"$1" | cut -c 1-64; }
tags() { foundry-store tags -q "$at" | xargs; }
all() { foundry-store tags -ql "$at" | xargs; }
# pulls TAG...: each of them
pulls() {
	local tag
	for tag; do
		rm -rf t
		foundry-store -s t pull -q "$at:$tag" && foundry-store -s t verify || return
	done
}

# --- tags ---

t "tags of a repository that does not exist is an error" says_only 3 "404" foundry-store tags "$at"
push a one
push b two --sign-key key.pem
manifest one >one.json
put same manifest one.json
one=$(digest_of one.json)
manifest two >two.json
two=$(digest_of two.json)
t "tags lists the tags without those of signatures" prints "one same two" tags
t "tags --long lists those of signatures, too" prints "one same sha256-$two sha256-$two.sig two" all
t "tags prints a table" prints "TAG  DIGEST        OBJECTS        SIZE
one  ${one:0:12}        2           x
two  ${two:0:12}        3           x  signed" bash -c \
	"foundry-store tags $at one two | sed 's/   *[0-9.]* KiB/           x/'"
t "tags prints JSON" json "[x['tag'] for x in j['tags']] == ['one', 'same', 'two'] and
	j['tags'][0]['digest'] == '$one' and j['tags'][2]['signed'] and j['tags'][0]['image'] and
	not j['tags'][0]['signed'] and j['tags'][0]['bytes'] > 90000" \
	foundry-store tags --json "$at"
t "tags lists the tags that match patterns" \
	prints "one same" bash -c "foundry-store tags -q $at 'o*' same | xargs"
t "tags of a name with a tag is wrong usage" says_only 2 "names one image; give the repository" \
	foundry-store tags "$at:one"

# --- a tag of its own digest ---

# Other programs name images by digest so. It is no signature.
{ cat one.json; echo; } >own.json
own=$(digest_of own.json)
put "sha256-$own" manifest own.json
t "an image tagged with its own digest is listed" prints "one same sha256-$own two" tags
t "a pattern keeps an image tagged with its own digest" \
	grep -q "^would remove 0 manifests" <(foundry-store prune "$at" --keep '*')
t "without such a pattern prune would remove the image" grep -q "^would remove sha256-$own," \
	<(foundry-store prune "$at" --keep one,same,two)
put own manifest own.json
t "unpush of the image's other tag is refused" \
	says_only 9 "the tag sha256-$own leads to the same image" foundry-store unpush "$at:own"
t "unpush removes the image by digest" bash -c "foundry-store unpush $at@sha256:$own -q &&
	[ \"\$(foundry-store tags -q $at | xargs)\" = 'one same two' ]"

# --- many tags, in pages ---

hostile_start bad "$host"
bad=oci+http://127.0.0.1:$bad_port/models
for i in {1..40}; do put "many$i" manifest one.json; done
fault "GET tags/list 9 pages 7"
t "tags reads a list in pages" prints "43" bash -c "foundry-store tags -q $bad | wc -l"
t "tags asked for every page" test "$(asked "GET.*tags/list.*last=")" -ge 5
fault "GET tags/list 99 pages 7,http://127.0.0.1:1"
t "a next page at another host is refused" \
	says_only 9 "at another host|not HTTPS" foundry-store tags "$bad"
fault

# --- a plan ---

t "prune without a repository names gc, too" says_only 2 \
	"prune needs REPOSITORY of a container registry .gc removes .*; see" foundry-store prune
t "prune needs patterns" says_only 2 "needs --keep" foundry-store prune "$at"
t "a pattern that matches nothing is refused" says_only 2 "no tag of models matches 'pord'" \
	foundry-store prune "$at" --keep two,pord --apply
plan() { foundry-store prune "$at" --keep "$@"; }
t "a plan keeps the named image and its signature" grep -Eq \
	"^keep sha256-$two.sig, [0-9a-f]{12}: two needs it$" <(plan two)
t "a plan keeps the tags of the same image" \
	grep -q "^keep same, ${one:0:12}: one needs it$" <(plan one)
t "a plan removes nothing" prints 43 bash -c "foundry-store tags -q $at | wc -l"
t "prune prints a plan as JSON" json "j['dry_run'] and j['removed'] == 3 and
	{x['tag'] for x in j['items'] if not x['kept']} ==
	{'two', 'sha256-$two.sig', 'sha256-$two'} and
	50000 < j['bytes'] < 52000" foundry-store prune --json "$at" --keep one
t "prune --apply does what the plan says" json "not j['dry_run'] and j['removed'] == 3" \
	foundry-store prune --json "$at" --keep 'o*' --apply
t "the kept images can be pulled" pulls one same many1
t "the removed images cannot be pulled" says_only 3 "404" foundry-store -s t pull "$at:two"
t "the signatures of removed images are removed" \
	prints 42 bash -c "foundry-store tags -ql $at | wc -l"
t "a second prune removes nothing" grep -q "^removed 0 manifests" \
	<(foundry-store prune "$at" --keep one --apply)

# --- indexes ---

push b two --sign-key key.pem
push c three --sign-key key.pem
manifest three >three.json
three=$(digest_of three.json)
part() {
	printf '{"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": %s, ' \
		"$(wc -c <"$1")"
	printf '"digest": "sha256:%s"}' "$(digest_of "$1")"
}
printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
	%s, %s]}' "$(part two.json)" "$(part three.json)" >index.json
put all index index.json
t "a part of a kept index stays, with its signatures" prints \
	"all three two and 4 others" bash -c "foundry-store prune $at --keep all --apply -q &&
	echo \$(foundry-store tags -q $at) and \\
	\$(foundry-store tags -ql $at sha256-* | wc -l) others"
t "the parts of a kept index can be pulled" pulls two three
t "a plan says why a part is kept" grep -q "^keep two, ${two:0:12}: all needs it$" <(plan all)
t "a tag whose manifest another one needs is not removed" says_only 9 \
	"the tag all leads to the same image" foundry-store unpush "$at:two"
t "its digest is not removed either" says_only 9 "the tag all leads to this as a part of an index" \
	foundry-store unpush "$at@sha256:$two"
push a one
t "unpush of an index keeps parts that have tags" bash -c \
	"foundry-store unpush $at:all &&
	[ \"\$(foundry-store tags -q $at | xargs)\" = 'one three two' ]"
put all index index.json
t "if the tag of one part is kept, the index and the other part are removed" bash -c \
	"foundry-store prune $at --keep one,two --apply -q &&
	[ \"\$(foundry-store tags -ql $at | xargs)\" = 'one sha256-$two sha256-$two.sig two' ]"
t "the removed part's manifest is not there" fails "" manifest "sha256:$three"
t "the kept images are whole" pulls one two

# --- one image ---

put same manifest one.json
t "a tag beside another is not removed alone" says_only 9 \
	"the tag one leads to the same image.*name the digest" foundry-store unpush "$at:same"
t "unpush --dry-run names the tag" grep -q "^would remove one, ${one:0:12}$" \
	<(foundry-store unpush -n "$at@sha256:$one")
t "unpush --dry-run removes nothing" prints "one same two" tags
t "a signature is not removed alone" says_only 9 "as a part of an index or as a signature" \
	foundry-store unpush "$at@sha256:$(manifest "sha256-$two.sig" | sha256sum | cut -c 1-64)"
t "unpush removes nothing if the answer is no" \
	exits 8 on_terminal n foundry-store unpush "$at@sha256:$one"
t "unpush by digest removes all tags of the image" bash -c "foundry-store unpush $at@sha256:$one &&
	[ \"\$(foundry-store tags -q $at | xargs)\" = two ]"
t "unpush of an unknown tag fails" says_only 3 "no such tag" foundry-store unpush "$at:none"
t "unpush of an unknown digest fails" \
	says_only 3 "no such tag or digest" foundry-store unpush "$at@sha256:$one"
# a new image under the tag: the old one has no tag, but its signature leads to it
push a two
t "an image without a tag stays, with its signature" prints \
	"sha256-$two sha256-$two.sig two" bash -c \
	"foundry-store prune $at --keep two --apply -q && foundry-store tags -ql $at | xargs"
t "an image without a tag can be pulled by digest" foundry-store -s t pull -q "$at@sha256:$two"
t "an image without a tag can be removed by digest, with its signature" bash -c \
	"foundry-store unpush $at@sha256:$two &&
	[ \"\$(foundry-store tags -ql $at | xargs)\" = two ]"

# --- manifests of others ---

echo '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
	"config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2, "digest":
	"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, "layers": [
	{"mediaType": "application/vnd.oci.empty.v1+json", "size": 2, "digest":
	"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}],
	"subject": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1, "digest":
	"sha256:'"$(manifest two | sha256sum | cut -c 1-64)"'"}}' >other.json
put about manifest other.json
t "a document that refers to a kept image stays" \
	grep -q "^keep about, .*: two needs it$" <(plan two)
t "a document that refers to an image can be kept alone" grep -q "^would remove two" <(plan about)

# --- faults ---

push b new
fault "DELETE manifests 9 status 405"
t "a registry that does not allow removals is an error" \
	says_only 6 "answered 405 to DELETE.*does not allow" \
	foundry-store prune -q "$bad" --keep two --apply
fault "HEAD manifests/new 1 status 404"
t "a tag that changes meanwhile is an error" \
	says_only 4 "the tag new of models was changed meanwhile" \
	foundry-store prune -q "$bad" --keep two --apply
t "that error removed nothing" prints "about new two" tags
fault "GET manifests/new 1 status 500"
t "a manifest that cannot be read is an error" says_only 9 "500" \
	foundry-store prune -q "$bad" --keep two --apply
while IFS='|' read -r list regex; do
	echo "$list" >list.json
	fault "GET tags/list 1 file $TMP/list.json"
	t "a list of tags is refused: $list" says_only 7 "$regex" foundry-store tags "$bad"
done <<'END'
[]|JSON
{}|malformed
{"tags": 1}|malformed
{"tags": [1]}|malformed
{"tags": ["../x"]}|malformed
{"tags": [""]}|malformed
END
echo '{"tags": null}' >list.json
fault "GET tags/list 1 file $TMP/list.json"
t "tags of a repository without tags prints nothing" prints "" foundry-store tags -q "$bad"

# --- Python ---

cat >prunes.py <<'END'
import sys
import foundry

at = sys.argv[1]
listed = foundry.tags(at)
assert [x.tag for x in listed] == ["about", "new", "two"], listed
assert listed[1].is_image and not listed[0].is_image and len(listed[1].id) == 64
plan = foundry.prune(at, ["about", "two"], dry_run=True)
assert plan.removed == 1 and plan.kept == 2, plan
assert [(x.tag, x.kept) for x in plan.items] == [("about", True), ("two", True), ("new", False)]
assert foundry.unpush(at + ":new").removed == 1
try:
    foundry.prune(at, "none")
    raise SystemExit("it pruned")
except foundry.Error as e:
    assert e.name == "FDRY_E_INVAL", e.name
assert foundry.prune(at, ["about"]).removed == 1 and len(foundry.tags(at)) == 2
assert foundry.prune(at, "about", dry_run=False).removed == 1
assert [x.tag for x in foundry.tags(at)] == ["about"]
END
t "the functions of Python list and remove tags" python3 prunes.py "$at"
# --- documents that hide what they need ---

push a one
push b two
printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
	"manifests": [], "manifests": []}' >twice.json
put twice index twice.json
t "a document that stays and is malformed refuses the removal" says_only 7 \
	"the document sha256:$(digest_of twice.json) of models stays and is malformed" \
	foundry-store prune "$at" --keep twice --apply
t "that refusal removed nothing" pulls one two
t "prune works when that document is gone" foundry-store prune "$at" --keep one --apply -q
push b two
wide() {
	python3 -c 'import json, os
print(json.dumps({"schemaVersion": 2, "manifests": [
	{"digest": "sha256:" + os.urandom(32).hex()} for _ in range(30000)]}))' >"$1"
}
wide wide1.json
wide wide2.json
fault "GET manifests/one 9 file $TMP/wide1.json" "GET manifests/two 9 file $TMP/wide2.json"
t "a repository with documents without end is an error" says_only 9 \
	"the tags of models lead to more than 50000 other documents" foundry-store tags "$bad"

# --- a removal that fails midway ---

push a one
push b two --sign-key key.pem
: >bad/headers
fault "DELETE sha256:[0-9a-f]*$ 1 pass" "DELETE sha256 9 status 403"
midway() {
	local rc=0
	foundry-store prune --json "$bad" --keep one --apply >report.json 2>said || rc=$?
	cat report.json said
	[ $rc = 6 ] && grep -q "403" said && python3 -c 'import json
j = json.load(open("report.json"))
assert j["removed"] == len([x for x in j["items"] if not x["kept"]]) == 1, j
assert j["requests"] > 5, j'
}
t "a removal that fails midway reports what it removed before" midway
fault

# --- a registry with tokens, which deletes for those alone that were asked for with this right ---

push a one
push b two --sign-key key.pem
echo x >bad/tokens
: >bad/asked
t "tags are listed with a token" prints "about one two" bash -c \
	"echo \$(foundry-store tags -q $bad)"
t "that token has no right to delete" bash -c "grep -q 'models%3Apull&\|models:pull&' bad/asked &&
	! grep -q delete bad/asked"
t "prune asks for a token with the right to delete" \
	bash -c "foundry-store prune $bad --keep one,about --apply -q &&
	grep -q delete bad/asked"
t "prune removed the image and its signatures with the token" prints "about one" all
push b two
: >bad/asked
t "unpush asks for a token with that right" \
	bash -c "foundry-store unpush $bad:two -q && grep -q delete bad/asked"
t "unpush removed the tag with the token" prints "about one" all
t_done
