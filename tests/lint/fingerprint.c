// SPDX-License-Identifier: Apache-2.0
/*
 * Prints fingerprints of bytes of several lengths and places, so that two processors can be
 * compared. Names the ways of this processor on standard error, and fails if they differ.
 */
#include "lib/fingerprint.c"

#include <stdio.h>

static uint8_t bytes[3 * FDRY_FINGERPRINT_BLOCK];

int main(void)
{
	static const size_t lens[] = {
		0, 1, 15, 16, 17, 4095, 4096, 4097, 65535, 65536, 65537, 131073
	};
	const struct way *way;
	struct fdry_fingerprint plain, v;
	size_t i, at, len;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++)
		for (at = 0; at < 2; at++) {
			v = fdry_fingerprint_of(bytes + at, lens[i]);
			printf("%zu at %zu: %016llx %016llx\n", lens[i], at,
			       (unsigned long long)v.a, (unsigned long long)v.b);
		}
	for (way = ways; way->name; way++) {
		if (!way->usable())
			continue;
		fprintf(stderr, "%s\n", way->name);
		for (len = 1; len <= FDRY_FINGERPRINT_BLOCK; len += 97) {
			plain = plain_block(bytes + len % 3, len);
			v = way->block(bytes + len % 3, len);
			if (!fdry_fingerprint_eq(plain, v))
				return 1;
		}
	}
	return 0;
}
