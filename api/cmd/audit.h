/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h - prints the audit of an image: the number of words by target. See image/audit.h. */
#ifndef FDRY_API_CMD_AUDIT_H
#define FDRY_API_CMD_AUDIT_H

#include "api/cmd/image.h"
#include "image/audit.h"

/* The stored audit of an image; of an image of an older version, one that is made now. */
int audit_read(struct fdry_reader *reader, const struct fdry_manifest *m,
	       struct fdry_audit *ret) __must_check;
/* "3 inside the image, 5 are no pointers", without targets that have no word. */
void audit_text(const struct fdry_mf_audit *a, char *ret, size_t len);
void audit_print(const struct fdry_manifest *m, const struct fdry_audit *a);
void audit_json(struct json *j, const struct fdry_manifest *m, const struct fdry_audit *a);

#endif
