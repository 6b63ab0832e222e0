#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Registries that would keep a client busy for ever, secrets that must not be in messages, and a
# client's library that cannot be opened.
# shellcheck disable=SC2154,SC2094 # registry_start sets NAME_port
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/cli/store.sh"
. "$ROOT/tests/cli/registry.sh"

hostile_image
registry_start real
hostile_begin

# --- without end ---

fault "GET $blob 9 rangeless 300000"
t "downloads that break off again and again are an error" refuses 9 "broke off"
fault "GET $blob 9 endless 404"
rm -rf t
t "an error whose text has no end is reported" says_only 3 "answered 404" \
	timeout 10 foundry-store -s t pull "$at"

touch bad/tokens
fault "GET /token 9 endless 200"
rm -rf t
t "a token that has no end is an error" says_only 9 "tokens sent more than 1048576 bytes" \
	timeout 10 foundry-store -s t pull "$at"
rm bad/tokens

mkdir bin
cat >bin/docker-credential-stays <<'END'
#!/bin/sh
echo '{"Username": "user", "Secret": "hunter2"}'
exec sleep 20 >&- 2>&-
END
chmod +x bin/docker-credential-stays
echo '{"credsStore": "stays"}' >"$HOME/.docker/config.json"
touch bad/tokens
fault
rm -rf t
t "a credential helper that does not end is an error" \
	says_only 2 "docker-credential-stays does not end" \
	timeout 15 env PATH="$TMP/bin:$PATH" foundry-store -s t pull "$at"

# --- secrets in messages ---

rm bad/tokens "$HOME/.docker/config.json"

fault "GET signed 9 status 403" \
	"GET $blob 9 status 307,Location:http://127.0.0.1:$bad_port/signed?sig=hunter2"
t "a message does not show the signature in a URL" \
	refuses 6 "answered 403 to GET /signed .TEST: a fault"
touch bad/tokens
fault
for text in '{"auths": {"x": {"auth": hunter2}}}' '{"password" "hunter2"}'; do
	echo "$text" >"$HOME/.docker/config.json"
	t "a message does not show the words of a file that is not JSON: $text" says_only 7 \
		"config.json is no JSON document: .*(token|expected) in line 1" \
		foundry-store -s t pull "$at"
done

# --- the client's library ---

mkdir own
cp -L "$(command -v foundry-store)" own/
echo none >own/libfoundry-registry.so.0.2
t "a library that cannot be opened is named with the reason" says_only 9 \
	"registries need.*own/libfoundry-registry.so.0.2: (file too short|invalid ELF header)" \
	env -u FOUNDRY_REGISTRY_LIBRARY own/foundry-store -s t pull "$at"
t_done
