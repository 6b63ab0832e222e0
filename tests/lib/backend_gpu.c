// SPDX-License-Identifier: Apache-2.0
/* backend_gpu.c - the machine's own driver; see backend.h. */
#include "tests/lib/backend.h"

#include <string.h>

#include "tests/lib/gpu.h"

const char backend_ptx[] =
	".version 8.1\n"
	".target sm_70\n"
	".address_size 64\n"
	/* x = x * constant + salt, spins + 1 times, in the first thread */
	".visible .entry step(.param .u64 step_x, .param .u64 step_salt, .param .u32 step_spins)\n"
	"{\n"
	"	.reg .b64 %x, %salt, %v;\n"
	"	.reg .b32 %spins, %i, %a, %b, %c;\n"
	"	.reg .pred %p;\n"
	"	ld.param.u64 %x, [step_x];\n"
	"	ld.param.u64 %salt, [step_salt];\n"
	"	ld.param.u32 %spins, [step_spins];\n"
	"	cvta.to.global.u64 %x, %x;\n"
	"	mov.u32 %a, %ctaid.x;\n"
	"	mov.u32 %b, %ntid.x;\n"
	"	mov.u32 %c, %tid.x;\n"
	"	mad.lo.u32 %c, %a, %b, %c;\n"
	"	setp.ne.u32 %p, %c, 0;\n"
	"	@%p ret;\n"
	"	mov.u32 %i, 0;\n"
	"again:\n"
	"	ld.volatile.global.u64 %v, [%x];\n"
	"	mad.lo.u64 %v, %v, 6364136223846793005, %salt;\n"
	"	st.volatile.global.u64 [%x], %v;\n"
	"	add.u32 %i, %i, 1;\n"
	"	setp.le.u32 %p, %i, %spins;\n"
	"	@%p bra again;\n"
	"	ret;\n"
	"}\n"
	".visible .entry odd(.param .u8 odd_a, .param .u16 odd_b, .param .align 1 .b8 odd_c[3], "
	".param .u64 odd_d,\n"
	"	.param .align 8 .b8 odd_e[16], .param .u8 odd_f, .param .u64 odd_out, .param .f32 "
	"odd_g, .param .u8 odd_h)\n"
	"{\n"
	"	.reg .b64 %out, %d;\n"
	"	.reg .b32 %v;\n"
	"	ld.param.u64 %out, [odd_out];\n"
	"	cvta.to.global.u64 %out, %out;\n"
	"	ld.param.u8 %v, [odd_a];\n"
	"	st.global.u32 [%out], %v;\n"
	"	ld.param.u16 %v, [odd_b];\n"
	"	st.global.u32 [%out+4], %v;\n"
	"	ld.param.u8 %v, [odd_c+2];\n"
	"	st.global.u32 [%out+8], %v;\n"
	"	ld.param.u64 %d, [odd_d];\n"
	"	st.global.u64 [%out+16], %d;\n"
	"	ld.param.u64 %d, [odd_e+8];\n"
	"	st.global.u64 [%out+24], %d;\n"
	"	ld.param.u8 %v, [odd_f];\n"
	"	st.global.u32 [%out+32], %v;\n"
	"	ld.param.u32 %v, [odd_g];\n"
	"	st.global.u32 [%out+36], %v;\n"
	"	ld.param.u8 %v, [odd_h];\n"
	"	st.global.u32 [%out+40], %v;\n"
	"	ret;\n"
	"}\n"
	/* out = out * 31 + token + 7 * position + 1000003 * length, in the first thread */
	".visible .entry decode(.param .u64 decode_t, .param .u64 decode_p, .param .u64 decode_l, "
	".param .u64 decode_o)\n"
	"{\n"
	"	.reg .b64 %t, %p, %l, %o, %v, %w;\n"
	"	.reg .b32 %a, %b, %c;\n"
	"	.reg .pred %q;\n"
	"	mov.u32 %a, %ctaid.x;\n"
	"	mov.u32 %b, %ntid.x;\n"
	"	mov.u32 %c, %tid.x;\n"
	"	mad.lo.u32 %c, %a, %b, %c;\n"
	"	setp.ne.u32 %q, %c, 0;\n"
	"	@%q ret;\n"
	"	ld.param.u64 %t, [decode_t];\n"
	"	cvta.to.global.u64 %t, %t;\n"
	"	ld.param.u64 %p, [decode_p];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	ld.param.u64 %l, [decode_l];\n"
	"	cvta.to.global.u64 %l, %l;\n"
	"	ld.param.u64 %o, [decode_o];\n"
	"	cvta.to.global.u64 %o, %o;\n"
	"	ld.volatile.global.u64 %v, [%o];\n"
	"	mul.lo.u64 %v, %v, 31;\n"
	"	ld.volatile.global.u32 %a, [%t];\n"
	"	cvt.u64.u32 %w, %a;\n"
	"	add.u64 %v, %v, %w;\n"
	"	ld.volatile.global.s32 %a, [%p];\n"
	"	cvt.s64.s32 %w, %a;\n"
	"	mad.lo.u64 %v, %w, 7, %v;\n"
	"	ld.volatile.global.s32 %a, [%l];\n"
	"	cvt.s64.s32 %w, %a;\n"
	"	mad.lo.u64 %v, %w, 1000003, %v;\n"
	"	st.volatile.global.u64 [%o], %v;\n"
	"	ret;\n"
	"}\n"
	/* the first n words of w, in the first thread */
	".visible .entry words(.param .u64 words_dst, .param .u64 words_n, "
	".param .align 8 .b8 words_w[32744])\n"
	"{\n"
	"	.reg .b64 %dst, %n, %w, %v;\n"
	"	.reg .b32 %a, %b, %c;\n"
	"	.reg .pred %p;\n"
	"	mov.u32 %a, %ctaid.x;\n"
	"	mov.u32 %b, %ntid.x;\n"
	"	mov.u32 %c, %tid.x;\n"
	"	mad.lo.u32 %c, %a, %b, %c;\n"
	"	setp.ne.u32 %p, %c, 0;\n"
	"	@%p ret;\n"
	"	ld.param.u64 %dst, [words_dst];\n"
	"	cvta.to.global.u64 %dst, %dst;\n"
	"	ld.param.u64 %n, [words_n];\n"
	"	mov.b64 %w, words_w;\n"
	"again:\n"
	"	setp.eq.u64 %p, %n, 0;\n"
	"	@%p ret;\n"
	"	ld.param.u64 %v, [%w];\n"
	"	st.global.u64 [%dst], %v;\n"
	"	add.u64 %w, %w, 8;\n"
	"	add.u64 %dst, %dst, 8;\n"
	"	sub.u64 %n, %n, 1;\n"
	"	bra again;\n"
	"}\n"
	".visible .entry nothing()\n"
	"{\n"
	"	ret;\n"
	"}\n"
	".visible .entry reverse(.param .u64 reverse_src, .param .u64 reverse_dst, .param .u32 "
	"reverse_n)\n"
	"{\n"
	"	ret;\n"
	"}\n";

static void *code(void)
{
	return strdup(backend_ptx);
}

/* A real driver does not count its objects. */
static long live(const char *what)
{
	(void)what;
	return 0;
}

const struct test_backend backend_gpu = {
	.driver = gpu_driver,
	.code = code,
	.live = live,
	.base = 0x500000000000ull,
	.spins = 100000,
};
