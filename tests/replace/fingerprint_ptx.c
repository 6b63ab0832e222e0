// SPDX-License-Identifier: Apache-2.0
/* fingerprint_ptx.c - see fingerprint_ptx.h. */
#include "tests/replace/fingerprint_ptx.h"

#include <stdio.h>
#include <string.h>

#include "arch/sim/kernel.h"

#define LINE 32u /* bytes of the object in a line */

__asm__(".pushsection .rodata, \"a\", %progbits\n"
	".balign 16\n"
	".global test_fingerprint_sim\n"
	"test_fingerprint_sim:\n"
	".incbin \"" FDRY_FINGERPRINT_SIM "\"\n"
	".global test_fingerprint_sim_end\n"
	"test_fingerprint_sim_end:\n"
	".byte 0\n"
	".popsection\n");
extern const uint8_t test_fingerprint_sim[], test_fingerprint_sim_end[];

static struct fdry_buf text;

/* The object as comments, which the software driver "compiles". */
static void text_make(void)
{
	size_t i, len = (size_t)(test_fingerprint_sim_end - test_fingerprint_sim);
	int err = fdry_buf_printf(&text, ".version 7.5\n.target sm_75\n.address_size 64\n");

	for (i = 0; i < len && !err; i++)
		err = fdry_buf_printf(&text, "%s%02x", i % LINE ? "" : "\n" SIM_PTX_MARK,
				      test_fingerprint_sim[i]);
	if (err || fdry_buf_printf(&text, "\n"))
		abort();
}

/* --- in place of graph/fingerprint_code.c --- */

struct fdry_span fdry_fingerprint_code(const struct fdry_driver *drv, unsigned int cc, bool *ptx)
{
	(void)drv, (void)cc;
	if (!text.len)
		text_make();
	*ptx = true;
	return (struct fdry_span){ text.data, text.len };
}
