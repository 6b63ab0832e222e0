// SPDX-License-Identifier: Apache-2.0
/*
 * sass.c - which constants machine code reads; see sass.h.
 *
 * Since Volta every instruction has 16 bytes. Bits 54 to 58 of a constant operand are its bank,
 * bits 38 to 53 its byte offset (37 to 53 in one load of Blackwell). Bits 9 to 11 select the
 * operand that is a constant. For each architecture in archs[], this was compared with a
 * disassembler's output for code of libraries, up to four million instructions.
 *
 * A load with a register as index may read anywhere in its bank. The offset is known only if a few
 * instructions before, the register was set to a number, and nothing in between writes it or is the
 * target of a jump. The set of jump targets is over-estimated. Every number that code puts into a
 * register counts as an address, and every jump distance is decoded in all known encodings.
 */
#include "graph/sass.h"

#include <stdlib.h>

#define SIZE 16u

enum {
	OP_LDC = 0xb82,      /* load constant, index in a register */
	OP_ULDC = 0xab9,     /* ... into a uniform register, no index */
	OP_ULDC_IDX = 0xabb, /* ... with a uniform register as index */
	OP_LDCU = 0x7ac,     /* Blackwell's ULDC */
	OP_MOV_IMM = 0x802,
	RZ = 255,            /* the register that is always 0 */
	LOOK_BACK = 24,      /* instructions */
};

struct insn {
	uint64_t lo, hi;
};

bool fdry_sass_supported(unsigned int arch)
{
	static const uint16_t archs[] = { 75, 80, 86, 89, 90, 100, 103, 110, 120, 121 };
	size_t i;

	for (i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		if (archs[i] == arch)
			return true;
	return false;
}

static struct insn insn_at(struct fdry_span code, uint32_t i)
{
	struct insn in = { fdry_get64(code.data + (size_t)i * SIZE),
			   fdry_get64(code.data + (size_t)i * SIZE + 8) };

	return in;
}

static unsigned int op(struct insn in)
{
	return in.lo & 0xfff;
}

static unsigned int dest(struct insn in)
{
	return in.lo >> 16 & 0xff;
}

static int64_t sign_extend(uint64_t v, unsigned int bits)
{
	return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

uint32_t fdry_sass_tables(struct fdry_span code)
{
	static const uint16_t ops[] = { 0x949, 0x958, 0x94c, 0x959 }; /* BRX, BRXU, JMX, JMXU */
	uint32_t i, n = (uint32_t)(code.len / SIZE), found = 0;
	size_t j;

	for (i = 0; i < n; i++)
		for (j = 0; j < sizeof(ops) / sizeof(ops[0]); j++)
			found += op(insn_at(code, i)) == ops[j];
	return found;
}

/* --- targets of jumps --- */

struct marks {
	uint8_t *at; /* by instruction */
	uint32_t n;
};

static void mark(struct marks *m, int64_t offset)
{
	if (offset >= 0 && offset % SIZE == 0 && offset / SIZE < m->n)
		m->at[offset / SIZE] = 1;
}

/* Branches, calls, returns, convergence barriers and "load my own address" have these opcodes. */
static bool is_control(struct insn in)
{
	return (op(in) & 0x1e0) == 0x140;
}

/* Whether an instruction can put a 32-bit number into a register, such as a return address. */
static bool is_number(struct insn in)
{
	static const uint16_t ops[] = { OP_MOV_IMM, 0x882, 0x424, 0x427, 0x431, 0x435, 0x824 };
	size_t i;

	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i] == op(in))
			return true;
	return false;
}

/* Distances have 48 or 30 bits, in units of 4 bytes, or of 1 KiB with eight more bits below. */
static void mark_insn(struct marks *m, struct insn in, uint32_t i)
{
	int64_t next = ((int64_t)i + 1) * SIZE;
	int64_t far = sign_extend(in.lo >> 34 | in.hi << 30, 48),
		near = sign_extend(in.lo >> 34, 30);
	int64_t low = dest(in) << 2;

	if (is_number(in))
		mark(m, (int64_t)(in.lo >> 32));
	if (!is_control(in))
		return;
	mark(m, next + far * 4);
	mark(m, next + near * 4);
	mark(m, next + far * 1024 + low);
	mark(m, next + near * 1024 + low);
}

static int marks_make(const struct fdry_sass_code *code, struct marks *ret)
{
	struct marks m = { .n = (uint32_t)(code->bytes.len / SIZE) };
	uint32_t i;

	m.at = calloc(m.n + 1, 1);
	if (!m.at)
		return fdry_nomem();
	if (code->anywhere)
		memset(m.at, 1, m.n);
	for (i = 0; i < m.n; i++)
		mark_insn(&m, insn_at(code->bytes, i), i);
	for (i = 0; i < code->njumps; i++)
		mark(&m, code->jumps[i]);
	*ret = m;
	return 0;
}

/* --- values of index registers --- */

/* The number of registers that an instruction writes, beginning with dest(). -1: unknown, or an
 * instruction that may jump. */
static int writes(unsigned int o)
{
	static const struct {
		uint16_t op;
		int8_t registers;
	} simple[] = {
		/* MOV */
		{ 0x202, 1 }, { 0x802, 1 }, { 0xa02, 1 }, { 0xc02, 1 },
		/* IMAD as a move */
		{ 0x224, 1 }, { 0x424, 1 }, { 0x624, 1 }, { 0x824, 1 }, { 0xe24, 1 },
		/* HFMA2 as a move */
		{ 0x435, 1 }, { 0x431, 1 },
		/* LOP3, IADD3 */
		{ 0x212, 1 }, { 0x812, 1 }, { 0x210, 1 }, { 0x810, 1 }, { 0xc10, 1 },
		/* CS2R, LDC */
		{ 0x805, 2 }, { 0xb82, 4 },
		/* UMOV, ULDC, LDCU, UIADD3: uniform registers */
		{ 0x882, 0 }, { 0xab9, 0 }, { 0x7ac, 0 }, { 0x290, 0 },
		/* DEPBAR, NOP */
		{ 0x91a, 0 }, { 0x918, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(simple) / sizeof(simple[0]); i++)
		if (simple[i].op == o)
			return simple[i].registers;
	return -1;
}

/* Whether it is an unconditional MOV of a number into a whole register. */
static bool is_mov_imm(struct insn in)
{
	return op(in) == OP_MOV_IMM && (in.lo >> 12 & 15) == 7 && (in.hi >> 8 & 15) == 15;
}

static bool index_value(struct fdry_span code, const struct marks *m, uint32_t i, uint32_t *ret)
{
	unsigned int reg = insn_at(code, i).lo >> 24 & 0xff;
	struct insn in;
	uint32_t back;
	int n;

	for (back = 1; back <= LOOK_BACK && back <= i; back++) {
		if (m->at[i - back + 1])
			return false;
		in = insn_at(code, i - back);
		if (is_mov_imm(in) && dest(in) == reg) {
			*ret = (uint32_t)(in.lo >> 32);
			return true;
		}
		n = writes(op(in));
		if (n < 0 || (dest(in) <= reg && dest(in) + (unsigned int)n > reg))
			return false;
	}
	return false;
}

/* --- reads --- */

/* The bytes that a load of each type reads. Type 7 is unknown and counts as 16 bytes. */
static uint32_t load_width(struct insn in)
{
	static const uint8_t bytes[8] = { 1, 1, 2, 2, 4, 8, 16, 16 };

	return bytes[in.hi >> 9 & 7];
}

static void read_fixed(struct fdry_sass_read *r, uint64_t from, uint32_t width)
{
	if (from > UINT32_MAX - 16) {
		r->all = true;
		return;
	}
	r->from = (uint32_t)from;
	r->to = (uint32_t)from + width;
}

static void read_ldc(struct fdry_span code, const struct marks *m, uint32_t i,
		     struct fdry_sass_read *r)
{
	struct insn in = insn_at(code, i);
	uint32_t index = 0;

	if ((in.lo >> 24 & 0xff) != RZ && !index_value(code, m, i, &index))
		r->all = true;
	else
		read_fixed(r, (in.lo >> 38 & 0xffff) + (uint64_t)index, load_width(in));
}

/* Whether instruction @i reads a constant, and which bytes. */
static bool read_of(struct fdry_span code, const struct marks *m, uint32_t i,
		    struct fdry_sass_read *r)
{
	struct insn in = insn_at(code, i);
	unsigned int form = op(in) >> 9 & 7;

	memset(r, 0, sizeof(*r));
	r->bank = in.lo >> 54 & 31;
	if (form != 3 && form != 5)
		return false;
	switch (op(in)) {
	case OP_LDC:
		read_ldc(code, m, i, r);
		break;
	case OP_ULDC_IDX:
		r->all = true;
		break;
	case OP_ULDC:
		read_fixed(r, in.lo >> 38 & 0xffff, load_width(in));
		break;
	case OP_LDCU:
		if ((in.lo >> 24 & 0xff) != RZ)
			r->all = true;
		else
			read_fixed(r, in.lo >> 37 & 0x1ffff, load_width(in));
		break;
	default: /* arithmetic: operands of 8 bytes are aligned */
		read_fixed(r, in.lo >> 38 & 0xffff, in.lo >> 38 & 7 ? 4 : 8);
	}
	return true;
}

/* Whether it is an LDC whose register also selects the bank. */
static bool any_bank(struct insn in)
{
	return op(in) == OP_LDC && (in.hi >> 14 & 3);
}

static int report(struct insn in, struct fdry_sass_read *r, fdry_sass_read_fn fn, void *arg)
{
	int ret = 0;

	if (!any_bank(in))
		return r->bank ? fn(arg, r) : 0;
	r->all = true;
	for (r->bank = 1; !ret && r->bank < FDRY_SASS_BANKS; r->bank++)
		ret = fn(arg, r);
	return ret;
}

int fdry_sass_reads(const struct fdry_sass_code *code, fdry_sass_read_fn fn, void *arg)
{
	struct fdry_sass_read r;
	struct marks m = { 0 };
	uint32_t i;
	int ret;

	if (!fdry_sass_supported(code->arch))
		return fdry_fail(FDRY_E_NOSLICE, "its instructions, for sm_%u, are not known",
				 code->arch);
	if (code->bytes.len % SIZE || code->bytes.len > UINT32_MAX)
		return fdry_fail(FDRY_E_NOSLICE, "its code ends within an instruction");
	ret = marks_make(code, &m);
	if (ret)
		return ret;
	for (i = 0; !ret && i < m.n; i++)
		if (read_of(code->bytes, &m, i, &r))
			ret = report(insn_at(code->bytes, i), &r, fn, arg);
	free(m.at);
	return ret;
}
