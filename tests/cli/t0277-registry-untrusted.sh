#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Signatures that a registry has changed, hidden, swapped or blown up, and policies of loads that
# fetch. Nothing of it makes an unsigned image count as signed.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 90000 /dev/urandom >a
head -c 50000 /dev/urandom >b
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=0
"$store_image" s m/one a >/dev/null
"$store_image" s m/two b >/dev/null
for key in team other; do
	openssl genpkey -algorithm ED25519 -out $key.pem 2>/dev/null
	openssl pkey -in $key.pem -pubout -out $key.pub
done
registry_start real
hostile_start bad "127.0.0.1:$real_port"
host=127.0.0.1:$bad_port
at=oci+http://$host/m/one
echo '{"version": 1, "default": {"keys": ["team.pub"]}}' >policy.json
export FOUNDRY_POLICY=policy.json
fault
# both images were signed under this name, one after the other
foundry-store push --private -q m/two "$at" --sign-key team.pem
foundry-store push --private -q m/two "$at:two"
foundry-store push --private -q m/one "$at" --sign-key team.pem
manifest() { curl -sf -H "Accept: application/vnd.oci.image.${2:-manifest}.v1+json" \
	"http://127.0.0.1:$real_port/v2/m/one/manifests/$1"; }
one=$(manifest latest | sha256sum | cut -c 1-64)
two=$(manifest two | sha256sum | cut -c 1-64)
manifest "sha256-$one.sig" >good.json
manifest "sha256-$two.sig" >two.json
good=$(sha256sum <good.json | cut -c 1-64)
payload=$(python3 -c 'import json; print(json.load(open("good.json"))["layers"][0]["digest"])')
sig="manifests/sha256-$one.sig"
index="manifests/sha256-$one$"
none=("GET $sig 9 status 404" "GET $index 9 status 404")

accepts() { rm -rf t; foundry-store -s t pull "$at" && foundry-store -s t verify; }
# refuses REGEX: nothing is fetched but documents
refused() {
	rm -rf t
	: >bad/headers
	says_only 6 "$1" foundry-store -s t pull "$at" || return
	[ -z "$(foundry-store -s t ls -qO)" ] || { echo "it stored objects"; return 1; }
	if grep "blobs/sha256:$(id_of a)" bad/headers; then
		echo "it asked for objects"
		return 1
	fi
	fault
	accepts
}

# --- where signatures are found ---

t "a signature at cosign's tag is found" accepts
fault "GET $sig 9 status 404"
t "a signature in the index of referrers is found" accepts
printf '{"schemaVersion": 2, "manifests": [{"mediaType": "%s", "digest": "sha256:%s", "size": %s,
	"artifactType": "application/vnd.dev.cosign.artifact.sig.v1+json"}]}' \
	application/vnd.oci.image.manifest.v1+json "$good" "$(wc -c <good.json)" >list.json
fault "${none[@]}" "GET referrers 9 file $TMP/list.json"
t "a signature in the registry's own list of referrers is found" accepts
echo '{"schemaVersion": 2, "manifests": []}' >empty.json
fault "GET $sig 9 status 404" "GET referrers 9 file $TMP/empty.json"
t "an empty list of the registry replaces the index" refused "the registry has no signature of it"
fault "${none[@]}"
t "without a signature the image is refused" refused "the registry has no signature of it"
: >bad/headers
fault
t "a policy that accepts asks for no signature" env FOUNDRY_POLICY= foundry-store -s u pull "$at"
t "no signature was asked for then" fails "" grep -q "sha256-" bad/headers

# --- changed ---

sed "s/sha256:$one/sha256:$two/" good.json >subject.json
fault "GET $sig 9 file $TMP/subject.json" "GET $index 9 status 404"
t "the subject of a signature manifest does not count" accepts
# json EXPRESSION: good.json, changed
changed() { python3 -c "import json; m = json.load(open('good.json')); layers = m['layers']
note = layers[0]['annotations']; name = 'dev.cosignproject.cosign/signature'
$1
open('changed.json', 'w').write(m if isinstance(m, str) else json.dumps(m))"; }
while IFS='|' read -r change regex; do
	changed "$change"
	fault "GET $sig 9 file $TMP/changed.json" "GET $index 9 status 404"
	t "a signature manifest is refused after: $change" \
		refused "${regex:-the registry has no signature}"
done <<'END'
note[name] = note[name][:40]|none of its 1 signatures
note[name] = note[name][:-4] + "AAA="|none of its 1 signatures
note[name] = "A" * 88|none of its 1 signatures
note[name] = "A" * 100000
note[name] = note[name].replace("=", "")
note[name] = 1
del layers[0]["annotations"]
layers[0]["size"] = 17000
layers[0]["size"] += 1|none of its 1 signatures
layers[0]["size"] -= 1|none of its 1 signatures
layers[0]["size"] = -1
layers[0]["mediaType"] = "text/plain"
layers[0]["digest"] = "sha256:" + "0" * 64|none of its 1 signatures
layers *= 65
m["layers"] = {}
m = "[]"
m = "[" * 100000
m = "{" + '"a": 1, ' * 2 + '"b": 1}'
m = json.dumps(m)[:-10]
m = " " * (5 << 20)
END
fault "GET $sig 9 file $TMP/two.json" "GET $index 9 status 404"
t "a signature of another image that had this name is refused" \
	refused "it has one for another image alone"
changed 'm = " " * (5 << 20)'
fault "GET $sig 9 file $TMP/changed.json"
t "a manifest that is too large does not hide a good one" accepts
fault "GET $sig 9 endless 200"
t "a manifest without end does not hide a good one" \
	timeout 20 bash -c "rm -rf t; foundry-store -s t pull $at"
fault "GET $sig 9 drop"
t "a registry that does not answer is an error of the network" says_only 9 "broke off" \
	foundry-store -s t pull "$at"
fault "GET $sig 9 status 403"
t "a registry that refuses signatures is an error" \
	says_only 6 "answered 403" foundry-store -s t pull "$at"
fault "GET $payload 9 flip"
t "a payload with other bytes is refused" refused "none of its 1 signatures"
fault "GET $payload 9 status 404"
t "a missing payload is refused" refused "none of its 1 signatures"
fault "GET $payload 9 longer"
t "a payload that is too long is refused" refused "none of its 1 signatures"

# --- many ---

python3 - <<'END'
import json
entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 900,
         "artifactType": "application/vnd.dev.cosign.artifact.sig.v1+json"}
lists = [dict(entry, digest=f"sha256:{i:064x}") for i in range(9000)]
open("many.json", "w").write(json.dumps({"schemaVersion": 2, "manifests": lists}))
good = json.load(open("good.json"))
layer = good["layers"][0]
wrong = json.loads(json.dumps(layer))
wrong["annotations"]["dev.cosignproject.cosign/signature"] = "A" * 86 + "=="
good["layers"] = [wrong] * 63 + [layer]
open("last.json", "w").write(json.dumps(good))
END
fault "GET $sig 9 file $TMP/last.json" "GET $index 9 status 404"
t "a good signature behind 63 others is found" accepts
fault "GET $sig 9 status 404" "GET $index 9 file $TMP/many.json"
t "an image with 9,000 missing referrers is refused" refused "the registry has no signature"
t "few of them were asked for" test "$(asked "manifests/sha256:0")" -le 64

# --- loads that fetch ---

vecadd=$BUILD/examples/vecadd
export FOUNDRY_DRIVER=$BUILD/foundry/sim/libcuda.so.1
fault
"$vecadd" capture -s v -m "$BUILD/sim/kernels.cubin" >/dev/null
export FOUNDRY_REGISTRY=oci+http://$host/images
load() { rm -rf l; foundry-store init l -q; "$vecadd" load -s l; }
foundry-store -s v push --private -q vecadd
t "a load that fetches an unsigned image fails" fails \
	"asks for a signature of $host/images:vecadd by team.pub" load
t "push signs with the key of the variable" env FOUNDRY_SIGN_KEY=team.pem \
	foundry-store -s v push --private -q vecadd
t "a load that fetches a signed image succeeds" load
registry_start cache proxy="http://127.0.0.1:$real_port"
export FOUNDRY_REGISTRY=oci+http://127.0.0.1:$cache_port/images
t "a policy for the origin refuses a cache, which has another name" \
	fails "it has one for $host/images:vecadd alone" load
printf '{"version": 1, "default": "reject", "names": {"127.0.0.1:%s": {"keys": ["team.pub"],
	"signedAs": "%s"}}}' "$cache_port" "$host" >policy.json
t "a policy can accept the cache" load
t_done
