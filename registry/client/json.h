/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading JSON from outside, by libjansson. */
#ifndef FDRY_REGISTRY_JSON_H
#define FDRY_REGISTRY_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/buf.h"
#include "lib/oid.h"

/* One object; a key that occurs twice is an error. @what: names it in the message. FDRY_E_BADIMAGE.
 */
int fdry_json_read(struct fdry_span text, const char *what, json_t **ret) __must_check;
/* The bytes of a file, @most at most. @there: whether it exists. FDRY_E_ENV if it cannot be read.
 */
int fdry_json_file(const char *path, size_t most, struct fdry_buf *ret, bool *there) __must_check;
/* A member that is a string; "" if there is none. */
const char *fdry_json_text(const json_t *object, const char *key);
/* The digest "sha256:..." of a member. False if it is none. */
bool fdry_json_digest(const json_t *object, const char *key, struct fdry_oid *ret);
/* A whole number that is not negative. */
bool fdry_json_count(const json_t *object, const char *key, uint64_t *ret);
/* What a registry says about an error: "CODE: message" of the first one; "" if there is nothing. */
void fdry_json_error(struct fdry_span text, char *ret, size_t size);

#endif
