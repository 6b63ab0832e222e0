/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fatbin.h - containers of device code: find the entry that the driver would use.
 *
 * A fatbin holds the same code for several architectures. Libraries hold thousands of
 * fatbins one after the other, so a fatbin's length comes from its own header, and the reader
 * never reads beyond it. Documentation/format/kernel-object.rst describes the bytes.
 */
#ifndef FDRY_GRAPH_FATBIN_H
#define FDRY_GRAPH_FATBIN_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

#define FDRY_FATBIN_MAGIC 0xBA55ED50u
#define FDRY_FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FDRY_FATBIN_ENTRIES_MAX 4096u
#define FDRY_FATBIN_CODE_MAX (1ull << 30) /* bytes of one entry, uncompressed */

/* Kinds of device code. */
enum fdry_devcode_kind {
	FDRY_DEVCODE_CUBIN, /* ELF for the GPU */
	FDRY_DEVCODE_PTX,   /* text, its terminating NUL not counted */
	FDRY_DEVCODE_HOST,  /* ELF for the host: an object of the software driver */
};

struct fdry_devcode {
	enum fdry_devcode_kind kind;
	struct fdry_span bytes;
	struct fdry_buf unpacked; /* owns the bytes if they were compressed */
};

enum fdry_fatbin_kind {
	FDRY_FATBIN_PTX = 1,
	FDRY_FATBIN_ELF = 2,
};

enum fdry_fatbin_flags {
	FDRY_FATBIN_LZ4 = 1 << 13,
	FDRY_FATBIN_ZSTD = 1 << 15,
	FDRY_FATBIN_EXACT = 1 << 20,  /* sm_90a: this architecture and no other */
	FDRY_FATBIN_FAMILY = 1 << 21, /* sm_100f: this family of architectures */
};

struct fdry_fatbin_entry {
	uint16_t kind;          /* enum fdry_fatbin_kind, or an unknown one */
	uint32_t arch;          /* 10 * major + minor compute capability */
	uint64_t flags;
	struct fdry_span packed; /* as in the fatbin */
	uint64_t size;          /* bytes once unpacked */
};

/* Walks a fatbin's entries. */
struct fdry_fatbin_iter {
	struct fdry_span entries; /* all of them */
	uint64_t pos;
	uint32_t count;
};

/* @bytes: a fatbin, and possibly more after it. FDRY_E_BADCODE if there is no whole fatbin. */
int fdry_fatbin_init(struct fdry_span bytes, struct fdry_fatbin_iter *ret) __must_check;
/* Read the next entry into @ret and set *@more to true, or set *@more to false after the last
 * entry. */
int fdry_fatbin_next(struct fdry_fatbin_iter *it, struct fdry_fatbin_entry *ret,
		     bool *more) __must_check;
/* An entry's bytes, which may point into the fatbin; release @ret with fdry_devcode_release(). */
int fdry_fatbin_unpack(const struct fdry_fatbin_entry *e, struct fdry_devcode *ret) __must_check;

/**
 * fdry_devcode_init() - In the data that a library is loaded from, find the code that the driver
 * uses.
 * @data: a fatbin wrapper, fatbin, cubin, PTX text or object of the software driver
 * @len: bytes at @data. It must be 0 for a wrapper, whose pointer is valid only in the process that
 *       was linked with it. It may be 0 for a fatbin, whose header holds the length.
 * @cc: 10 * major + minor compute capability of the device
 *
 * In a fatbin, the driver uses the cubin for the device's major version and the highest minor
 * version that is not above the device's. It prefers code for exactly this architecture (sm_90a) to
 * code for its family (sm_100f), and that to plain code. If several cubins fit equally well, it
 * uses the first. If no cubin fits, it uses the PTX for the highest architecture that is not above
 * the device's. This function copies only compressed code, so @data must outlive @ret.
 *
 * Errors: FDRY_E_BADCODE (the data is malformed, two PTX texts fit equally well, or the entry
 * that fits is a relocatable object, which the driver links while it loads it), FDRY_E_NOENT
 * (no entry fits), FDRY_E_LIMIT, FDRY_E_NOMEM.
 */
int fdry_devcode_init(const void *data, size_t len, unsigned int cc,
		      struct fdry_devcode *ret) __must_check;
void fdry_devcode_release(struct fdry_devcode *code);

#endif
