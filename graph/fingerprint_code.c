// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint_code.c - the fingerprint kernel as code for each GPU.
 *
 * graph/fingerprint/make.sh makes the files from fingerprint.cu; the assembler puts them into the
 * library. Each build makes the object of the software driver, since it runs on the CPU that is
 * built for.
 */
#include "graph/fingerprint.h"

#include "graph/embed.h"

/* The cubins: X(compute capability). A cubin also runs on later minor versions. */
#define CUBINS(X) X(80) X(86) X(89) X(90) X(100) X(120)
#define PTX_LEAST 75u

#define X(cc) FDRY_EMBED(fdry_fingerprint_sm_##cc, "graph/fingerprint/sm_" #cc ".cubin");
CUBINS(X)
#undef X
FDRY_EMBED(fdry_fingerprint_ptx, "graph/fingerprint/compute_75.ptx");
FDRY_EMBED(fdry_fingerprint_sim, FDRY_FINGERPRINT_SIM);

static const struct cubin {
	unsigned int cc;
	const uint8_t *from, *to;
} cubins[] = {
#define X(cc) { cc, fdry_fingerprint_sm_##cc, fdry_fingerprint_sm_##cc##_end },
	CUBINS(X)
#undef X
};

struct fdry_span fdry_fingerprint_code(const struct fdry_driver *drv, unsigned int cc, bool *ptx)
{
	size_t i = sizeof(cubins) / sizeof(cubins[0]);

	*ptx = false;
	if (drv->software)
		return fdry_embedded(fdry_fingerprint_sim, fdry_fingerprint_sim_end);
	while (i--)
		if (cubins[i].cc <= cc && cubins[i].cc / 10 == cc / 10)
			return fdry_embedded(cubins[i].from, cubins[i].to);
	*ptx = cc >= PTX_LEAST;
	if (*ptx)
		return fdry_embedded(fdry_fingerprint_ptx, fdry_fingerprint_ptx_end);
	return (struct fdry_span){ 0 };
}
