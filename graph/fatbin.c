// SPDX-License-Identifier: Apache-2.0
/*
 * fatbin.c - reads containers of device code; see fatbin.h.
 *
 * The reader finds everything by offsets, which it checks against the length in the fatbin's own
 * header. It follows one pointer unchecked: the one in a wrapper, which the linker of the process
 * wrote.
 */
#include "graph/fatbin.h"

#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#include "graph/elf.h"

struct wrapper {
	uint32_t magic;
	uint32_t version;  /* 1: data is the fatbin; 2: data is a fatbin made by device linking */
	const void *data;
	void *more;        /* version 2: the fatbins that the device linker read */
};

struct header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_size;
	uint64_t size; /* of the entries that follow */
};
_Static_assert(sizeof(struct header) == 16, "as on disk");

struct entry_header {
	uint16_t kind;
	uint16_t version;
	uint32_t header_size;
	uint64_t size;        /* of the payload that follows, with padding */
	uint32_t packed_size; /* of the compressed payload; 0: it is not compressed */
	uint32_t options;     /* offset of text or attributes in a longer header */
	uint16_t minor;       /* version of ELF or PTX */
	uint16_t major;
	uint32_t arch;
	uint32_t name;
	uint32_t name_len;
	uint64_t flags;
	uint64_t reserved;
	uint64_t unpacked_size;
};
_Static_assert(sizeof(struct entry_header) == 64, "as on disk");

#define HEADER_VERSION 1
#define ENTRY_VERSION 0x101
/* The two compressions that this reader knows. */
#define PACKED (FDRY_FATBIN_LZ4 | FDRY_FATBIN_ZSTD)

static int fatbin_bad(const char *what)
{
	return fdry_fail(FDRY_E_BADCODE, "malformed fatbin: %s; rebuild the library it came from",
			 what);
}

int fdry_fatbin_init(struct fdry_span bytes, struct fdry_fatbin_iter *ret)
{
	const void *p = fdry_span_at(bytes, 0, sizeof(struct header));
	struct header h;

	if (!p)
		return fatbin_bad("it is shorter than its header");
	memcpy(&h, p, sizeof(h));
	if (h.magic != FDRY_FATBIN_MAGIC)
		return fatbin_bad("it lacks the magic number");
	if (h.version != HEADER_VERSION || h.header_size != sizeof(h))
		return fatbin_bad("its version is unknown");
	p = fdry_span_at(bytes, sizeof(h), h.size);
	if (!p)
		return fatbin_bad("it ends beyond the file");
	memset(ret, 0, sizeof(*ret));
	ret->entries.data = p;
	ret->entries.len = h.size;
	return 0;
}

static int entry_check(const struct entry_header *h)
{
	if (h->version != ENTRY_VERSION || h->header_size < sizeof(*h))
		return fatbin_bad("an entry's version is unknown");
	if ((h->flags & PACKED) == PACKED)
		return fatbin_bad("an entry is compressed twice");
	if (h->flags & PACKED ? !h->packed_size || h->packed_size > h->size : h->packed_size != 0)
		return fatbin_bad("an entry's compressed size is wrong");
	if (h->size > FDRY_FATBIN_CODE_MAX ||
	    (h->flags & PACKED && h->unpacked_size > FDRY_FATBIN_CODE_MAX))
		return fdry_fail(FDRY_E_LIMIT,
				 "an entry of the fatbin has more than %llu bytes; split it",
				 (unsigned long long)FDRY_FATBIN_CODE_MAX);
	return 0;
}

int fdry_fatbin_next(struct fdry_fatbin_iter *it, struct fdry_fatbin_entry *ret, bool *more)
{
	const void *p = fdry_span_at(it->entries, it->pos, sizeof(struct entry_header));
	const uint8_t *payload;
	struct entry_header h;
	int err;

	*more = false;
	if (it->pos == it->entries.len)
		return 0;
	if (!p)
		return fatbin_bad("an entry is shorter than its header");
	if (++it->count > FDRY_FATBIN_ENTRIES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the fatbin has more than %u entries; split it",
				 FDRY_FATBIN_ENTRIES_MAX);
	memcpy(&h, p, sizeof(h));
	err = entry_check(&h);
	if (err)
		return err;
	payload = fdry_span_at(it->entries, it->pos + h.header_size, h.size);
	if (!payload)
		return fatbin_bad("an entry ends beyond it");
	*ret = (struct fdry_fatbin_entry){
		.kind = h.kind, .arch = h.arch, .flags = h.flags,
		.packed = { payload, h.flags & PACKED ? h.packed_size : h.size },
		.size = h.flags & PACKED ? h.unpacked_size : h.size,
	};
	it->pos += h.header_size + h.size;
	*more = true;
	return 0;
}

static int unpack_into(const struct fdry_fatbin_entry *e, struct fdry_buf *ret)
{
	void *to;
	size_t n;
	int err;

	/* Before memory is allocated, refuse a size that the data cannot have. */
	if (e->flags & FDRY_FATBIN_LZ4 ? e->size / 256 > e->packed.len :
	    ZSTD_getFrameContentSize(e->packed.data, e->packed.len) != e->size)
		return fatbin_bad("an entry's size is not that of its data");
	err = fdry_buf_grow(ret, e->size, &to);
	if (err)
		return err;
	if (e->flags & FDRY_FATBIN_LZ4) {
		if (LZ4_decompress_safe((const char *)e->packed.data, to, (int)e->packed.len,
					(int)e->size) != (int)e->size)
			return fatbin_bad("an entry's LZ4 data is damaged");
		return 0;
	}
	n = ZSTD_decompress(to, e->size, e->packed.data, e->packed.len);
	return ZSTD_isError(n) || n != e->size ? fatbin_bad("an entry's zstd data is damaged") : 0;
}

/* Cut text at its NUL: the driver needs the NUL, but the id of the code must not depend on it. */
static void text_trim(struct fdry_devcode *code)
{
	if (code->kind == FDRY_DEVCODE_PTX)
		code->bytes.len = strnlen((const char *)code->bytes.data, code->bytes.len);
}

static enum fdry_devcode_kind kind_of(struct fdry_span bytes, uint16_t kind)
{
	if (kind == FDRY_FATBIN_PTX)
		return FDRY_DEVCODE_PTX;
	return fdry_elf_machine(bytes) == FDRY_EM_CUDA ? FDRY_DEVCODE_CUBIN : FDRY_DEVCODE_HOST;
}

int fdry_fatbin_unpack(const struct fdry_fatbin_entry *e, struct fdry_devcode *ret)
{
	struct fdry_devcode code = { .bytes = e->packed };
	int err;

	if (e->flags & PACKED) {
		err = unpack_into(e, &code.unpacked);
		if (err) {
			fdry_buf_release(&code.unpacked);
			return err;
		}
		code.bytes.data = code.unpacked.data;
		code.bytes.len = code.unpacked.len;
	}
	code.kind = kind_of(code.bytes, e->kind);
	text_trim(&code);
	*ret = code;
	return 0;
}

void fdry_devcode_release(struct fdry_devcode *code)
{
	fdry_buf_release(&code->unpacked);
	memset(code, 0, sizeof(*code));
}

/* Compute capability 10.1 was renamed to 11.0, so it does not belong to the family of 10.0. */
static bool same_family(uint32_t arch, unsigned int cc)
{
	return arch / 10 == cc / 10 && arch <= cc && (arch == 101) == (cc == 101);
}

/* The rank of an entry: the driver uses the entry with the highest score. 0: the entry is not for
 * this device. */
static uint32_t entry_score(const struct fdry_fatbin_entry *e, unsigned int cc)
{
	if (e->arch > 10000)
		return 0;
	if (e->flags & FDRY_FATBIN_EXACT ? e->arch != cc :
	    e->flags & FDRY_FATBIN_FAMILY ? !same_family(e->arch, cc) : e->arch > cc)
		return 0;
	if (e->kind == FDRY_FATBIN_ELF && e->arch / 10 != cc / 10)
		return 0;
	return (e->kind == FDRY_FATBIN_ELF ? 1u << 30 : 0) + 4 * e->arch +
	       (e->flags & FDRY_FATBIN_EXACT ? 2 : e->flags & FDRY_FATBIN_FAMILY ? 1 : 0);
}

struct choice {
	struct fdry_fatbin_entry best;
	uint32_t score;
	bool twice; /* two PTX entries have this score */
};

static void choice_offer(struct choice *c, const struct fdry_fatbin_entry *e, unsigned int cc)
{
	uint32_t score = 0;

	if (e->kind == FDRY_FATBIN_ELF || e->kind == FDRY_FATBIN_PTX)
		score = entry_score(e, cc);
	/* If two cubins have the same score, the driver uses the first. If two PTX texts have, it
	 * is unknown which one the driver uses. */
	if (!score || score < c->score || (score == c->score && e->kind == FDRY_FATBIN_ELF))
		return;
	c->twice = score == c->score;
	c->score = score;
	c->best = *e;
}

/* Refuse a relocatable object. The driver links it during the load, so the final code is unknown
 * here. */
static int choice_unpack(const struct choice *c, struct fdry_devcode *ret)
{
	struct fdry_devcode code;
	const void *type;
	int err = fdry_fatbin_unpack(&c->best, &code);

	if (err)
		return err;
	type = fdry_span_at(code.bytes, offsetof(struct fdry_elf_ehdr, type), sizeof(uint16_t));
	if (code.kind == FDRY_DEVCODE_CUBIN && type && fdry_get16(type) == FDRY_ET_REL) {
		fdry_devcode_release(&code);
		return fdry_fail(FDRY_E_BADCODE,
				 "the fatbin's code for sm_%u is an object that was not linked; "
				 "link it (nvcc -dlink) "
				 "before it is loaded",
				 c->best.arch);
	}
	*ret = code;
	return 0;
}

static int fatbin_find(struct fdry_span bytes, unsigned int cc, struct fdry_devcode *ret)
{
	struct choice c = { .score = 0 };
	struct fdry_fatbin_iter it;
	struct fdry_fatbin_entry e;
	bool more;
	int err;

	err = fdry_fatbin_init(bytes, &it);
	if (err)
		return err;
	while (!(err = fdry_fatbin_next(&it, &e, &more)) && more)
		choice_offer(&c, &e, cc);
	if (err)
		return err;
	if (!c.score)
		return fdry_fail(
			FDRY_E_NOENT,
			"the fatbin holds no code for compute capability %u.%u; rebuild the "
			"library for it",
			cc / 10, cc % 10);
	if (c.twice)
		return fdry_fail(
			FDRY_E_BADCODE,
			"the fatbin holds two PTX entries for compute_%u; which one the driver "
			"uses is unknown, so rebuild the library with one",
			c.best.arch);
	return choice_unpack(&c, ret);
}

/* A fatbin in memory of the process: its header holds its length. */
static int fatbin_in_memory(const void *data, struct fdry_span *ret)
{
	struct header h;

	memcpy(&h, data, sizeof(h));
	if (h.magic != FDRY_FATBIN_MAGIC)
		return fatbin_bad("it lacks the magic number");
	if (h.size > FDRY_FATBIN_CODE_MAX * 16)
		return fatbin_bad("its length is impossible");
	ret->data = data;
	ret->len = sizeof(h) + h.size;
	return 0;
}

static int wrapper_find(const void *data, unsigned int cc, struct fdry_devcode *ret)
{
	struct fdry_span bytes;
	struct wrapper w;
	int err;

	memcpy(&w, data, sizeof(w));
	if (w.version != 1 && w.version != 2)
		return fatbin_bad("its wrapper's version is unknown");
	if (!w.data)
		return fatbin_bad("its wrapper is empty");
	err = fatbin_in_memory(w.data, &bytes);
	return err ? err : fatbin_find(bytes, cc, ret);
}

static int bare_find(struct fdry_span bytes, struct fdry_devcode *ret)
{
	struct fdry_devcode code = { .bytes = bytes };

	if (fdry_elf_machine(bytes)) {
		code.kind = kind_of(bytes, FDRY_FATBIN_ELF);
	} else if (memmem(bytes.data, bytes.len, ".version", 8)) {
		code.kind = FDRY_DEVCODE_PTX;
		text_trim(&code);
	} else {
		return fdry_fail(
			FDRY_E_BADCODE,
			"the device code is neither a fatbin, a cubin nor PTX; pass one of them");
	}
	*ret = code;
	return 0;
}

int fdry_devcode_init(const void *data, size_t len, unsigned int cc, struct fdry_devcode *ret)
{
	struct fdry_span bytes = { data, len };
	uint32_t magic;
	int err;

	if (!data || (len && len < sizeof(magic)))
		return fdry_fail(FDRY_E_BADCODE, "the device code is empty; pass all of its bytes");
	magic = fdry_get32(data);
	if (magic == FDRY_FATBIN_WRAPPER_MAGIC) {
		if (len)
			return fdry_fail(FDRY_E_BADCODE, "bytes with a length cannot be a fatbin "
							 "wrapper, which holds a pointer of its "
							 "process; pass the fatbin that it points "
							 "to, or length 0 if this process was "
							 "linked with it");
		return wrapper_find(data, cc, ret);
	}
	if (magic == FDRY_FATBIN_MAGIC) {
		err = len ? 0 : fatbin_in_memory(data, &bytes);
		return err ? err : fatbin_find(bytes, cc, ret);
	}
	if (!len)
		return fdry_fail(FDRY_E_BADCODE,
				 "only a fatbin holds its length; pass the length of other code");
	return bare_find(bytes, ret);
}
