#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The documentation and the manual page are rendered without a warning.
. "$(dirname "$0")/../lib.sh"

render() { env -u MAKEFLAGS -u MAKELEVEL make -s -C "$ROOT" BUILD="$BUILD" docs; }

t "the documentation is rendered without a warning" render
for page in index performance design/store api/store-json api/python api/c-images help/errors; do
	t "there is $page" test -s "$BUILD/docs/$page.html"
done
# described PAGE NAME: the page has a target of that name
described() { grep -q "id=\"$2\"" "$BUILD/docs/$1.html"; }
t "a function is described by its header" described api/c-images c.fdry_image_load
t "a member is described by its header" described api/c-images c.fdry_load_opts.order
t "a code is described" described help/errors c.FDRY_E_NOENT
t "a method is described by its docstring" described api/python foundry.Image.launch
# No warning reports a table that is rendered as text.
t "tables are tables" bash -c \
	"! sed 's/<pre>.*//' '$BUILD'/docs/*.html '$BUILD'/docs/*/*.html | grep -n '^=====* ===='"
t_done
