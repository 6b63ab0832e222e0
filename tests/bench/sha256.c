// SPDX-License-Identifier: Apache-2.0
/*
 * sha256.c - the speed of SHA-256 by the libcrypto that the library is linked with.
 *
 * sha256: prints the time of a hash and the bytes per second for four sizes, each the least of some
 * rounds, in processor time of one thread. Most objects are small, and chunks of content have up to
 * 2 MiB. With the libcrypto of the portable wheel, after `make all tests dist`:
 *
 *	cc -O2 -DNDEBUG -std=gnu11 -D_GNU_SOURCE -pthread -I. -Iinclude \
 *		-isystem build-dist/sources/awscrt/awscrt-0.38.1/crt/aws-lc/include \
 *		tests/bench/sha256.c lib/oid.c build/tests/libtests.a build/libfoundry.a \
 *		build-dist/x86_64/crypto/crypto/libcrypto.a -llmdb -lzstd -llz4 -ldl
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/oid.h"
#include "tests/lib/need.h"

#define ROUNDS 15
#define BYTES (16u << 20) /* that a round hashes */

static const size_t sizes[] = { 64, 4 << 10, 64 << 10, 2 << 20 };

static double round_ms(const char *data, size_t size)
{
	size_t i, n = BYTES / size / (size < 4096 ? 16 : 1);
	double begun = fdry_thread_ms();
	struct fdry_oid id;

	for (i = 0; i < n; i++)
		must(fdry_oid_of(data, size, &id));
	return (fdry_thread_ms() - begun) / (double)n;
}

int main(void)
{
	char *data = malloc(sizes[3]);
	double ms, best;
	size_t i, round;

	must(data ? 0 : -1);
	memset(data, 'x', sizes[3]);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		best = round_ms(data, sizes[i]);
		for (round = 1; round < ROUNDS; round++) {
			ms = round_ms(data, sizes[i]);
			best = ms < best ? ms : best;
		}
		printf("%8zu bytes %10.2f us %8.2f GB/s\n", sizes[i], best * 1e3,
		       (double)sizes[i] / best / 1e6);
	}
	free(data);
	return 0;
}
