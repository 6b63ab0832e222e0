#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The documentation and the manual page are rendered without a warning.
. "$(dirname "$0")/../lib.sh"

render() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$ROOT" BUILD="$BUILD" docs; }

t "the documentation is rendered without a warning" render
for page in index performance design/store api/store-json; do
	t "there is $page" test -s "$BUILD/docs/$page.html"
done
# No warning reports a table that is rendered as text.
t "tables are tables" bash -c \
	"! sed 's/<pre>.*//' '$BUILD'/docs/*.html '$BUILD'/docs/*/*.html | grep -n '^=====* ===='"
t_done
