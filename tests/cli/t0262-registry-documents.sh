#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Documents of a registry that are not what push wrote: each is refused before an object is fetched.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

head -c 90000 /dev/urandom >a
head -c 50000 /dev/urandom >b
export FOUNDRY_STORE=$TMP/s FOUNDRY_REGISTRY_RETRIES=0
"$store_image" s m/one a b >/dev/null
registry_start real
hostile_start bad "127.0.0.1:$real_port"
at=oci+http://127.0.0.1:$bad_port/m/one
fault
t "an image is pushed for the next tests" foundry-store push --private m/one "$at"

manifest() { python3 - "$@" <<'END'
import json, sys, urllib.request
at, change = sys.argv[1:3]
request = urllib.request.Request(at, headers={
	"Accept": "application/vnd.oci.image.manifest.v1+json"})
m = json.load(urllib.request.urlopen(request))
layers = m["layers"]
exec(change)
text = json.dumps(m) if not isinstance(m, str) else m
open("changed.json", "w").write(text)
END
}
changed() {
	manifest "http://127.0.0.1:$real_port/v2/m/one/manifests/latest" "$1"
	fault "GET manifests/latest 1 file $TMP/changed.json"
}
while IFS='|' read -r change regex; do
	changed "$change"
	t "a manifest is refused after: $change" refuses 7 "$regex"
done <<'END'
del layers[1]|a layer is not the object of its list
layers.append(layers[1])|its layers are not the objects
layers[1], layers[2] = layers[2], layers[1]|is not the object of its list
layers[1]["size"] += 1|is not the object of its list
layers[1]["size"] = -1|no SHA-256 or no size
layers[1]["size"] = 2**70|no SHA-256 or no size|JSON
layers[1]["size"] = 1.5|no SHA-256 or no size
layers[1]["mediaType"] = "x" * 100000|is not the object of its list
layers[1]["mediaType"] = "application/vnd.foundry.graph.v1"|is not the object of its list
layers[1]["digest"] = "sha256:zz"|no SHA-256 or no size
layers[1]["digest"] = "sha512:" + "0" * 128|no SHA-256 or no size
layers[0] = layers[1]|is not an image of Foundry
layers[0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar"|is not an image of Foundry
m["layers"] = []|neither layers nor manifests
m["layers"] = {}|neither layers nor manifests
m["manifests"] = []|neither a manifest nor an index
m["schemaVersion"] = 1|schema version
m["mediaType"] = "text/plain"|media type
m = "[]"|not a JSON object
m = "{\"schemaVersion\": 2, \"schemaVersion\": 2}"|no JSON document
m = "[" * 100000|no JSON document
m = " " * (5 << 20)|sent more than 4194304 bytes
END

changed 'm["layers"] = layers * 5000'
t "a manifest with 20,000 layers is refused" \
	refuses 9 "lists 20000 entries, and Foundry reads 10000"
# --- an index that names one manifest very often ---

python3 - "http://127.0.0.1:$real_port/v2/m/one/manifests/latest" <<'END'
import hashlib, json, sys, urllib.request
media = "application/vnd.oci.image.manifest.v1+json"
data = urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers={"Accept": media})).read()
part = {"mediaType": media, "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
	"size": len(data)}
with open("index.json", "w") as f:
	json.dump({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		   "manifests": [part] * 500}, f)
END
fault "GET manifests/latest 1 file $TMP/index.json"
: >bad/headers
rm -rf t
t "an index of 500 equal manifests is refused" says_only 7 "is not the object|are not the objects" \
	foundry-store -s t pull "$at"
t "it is refused at its second manifest" test "$(asked "GET.*manifests/sha256")" -le 2
t_done
