// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint_code.c - the fingerprint kernel as code for each GPU.
 *
 * graph/fingerprint/make.sh makes the files from fingerprint.cu; the assembler puts them into the
 * library. Each build makes the object of the software driver, since it runs on the CPU that is
 * built for.
 */
#include "graph/fingerprint.h"

/* The cubins: X(compute capability). A cubin also runs on later minor versions. */
#define CUBINS(X) X(80) X(86) X(89) X(90) X(100) X(120)
#define PTX_LEAST 75u

#define EMBED(name, file) \
	__asm__(".pushsection .rodata, \"a\", %progbits\n" \
		".balign 16\n" \
		".hidden fdry_fingerprint_" name "\n" \
		".global fdry_fingerprint_" name "\n" \
		"fdry_fingerprint_" name ":\n" \
		".incbin \"" file "\"\n" \
		".hidden fdry_fingerprint_" name "_end\n" \
		".global fdry_fingerprint_" name "_end\n" \
		"fdry_fingerprint_" name "_end:\n" \
		".byte 0\n" \
		".popsection\n")
#define DECLARE(name) \
	extern const uint8_t fdry_fingerprint_##name[] __attribute__((visibility("hidden"))); \
	extern const uint8_t fdry_fingerprint_##name##_end[] __attribute__((visibility("hidden")))

#define X(cc) \
	EMBED("sm_" #cc, "graph/fingerprint/sm_" #cc ".cubin"); \
	DECLARE(sm_##cc);
CUBINS(X)
#undef X
EMBED("ptx", "graph/fingerprint/compute_75.ptx");
DECLARE(ptx);
EMBED("sim", FDRY_FINGERPRINT_SIM);
DECLARE(sim);

static const struct cubin {
	unsigned int cc;
	const uint8_t *from, *to;
} cubins[] = {
#define X(cc) { cc, fdry_fingerprint_sm_##cc, fdry_fingerprint_sm_##cc##_end },
	CUBINS(X)
#undef X
};

static struct fdry_span span(const uint8_t *from, const uint8_t *to)
{
	return (struct fdry_span){ from, (size_t)(to - from) };
}

struct fdry_span fdry_fingerprint_code(const struct fdry_driver *drv, unsigned int cc, bool *ptx)
{
	size_t i = sizeof(cubins) / sizeof(cubins[0]);

	*ptx = false;
	if (drv->software)
		return span(fdry_fingerprint_sim, fdry_fingerprint_sim_end);
	while (i--)
		if (cubins[i].cc <= cc && cubins[i].cc / 10 == cc / 10)
			return span(cubins[i].from, cubins[i].to);
	*ptx = cc >= PTX_LEAST;
	if (*ptx)
		return span(fdry_fingerprint_ptx, fdry_fingerprint_ptx_end);
	return (struct fdry_span){ 0 };
}
