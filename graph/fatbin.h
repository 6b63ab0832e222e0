/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fatbin.h - containers of device code: find the entry that the driver would use.
 *
 * A fatbin holds the same code for several architectures. Libraries keep thousands of
 * fatbins back to back, so its length comes from its own header and nothing behind it is
 * ever looked at. Documentation/format/kernel-object.rst describes the bytes.
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

/* What a piece of device code is. */
enum fdry_devcode_kind {
	FDRY_DEVCODE_CUBIN, /* ELF for the GPU */
	FDRY_DEVCODE_PTX,   /* text, its terminating NUL not counted */
	FDRY_DEVCODE_HOST,  /* ELF for the host: an object of the software driver */
};

struct fdry_devcode {
	enum fdry_devcode_kind kind;
	struct fdry_span bytes;
	struct fdry_buf unpacked; /* owns the bytes where they were compressed */
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
	uint16_t kind;          /* enum fdry_fatbin_kind, or one that we do not know */
	uint32_t arch;          /* 10 * major + minor compute capability */
	uint64_t flags;
	struct fdry_span packed; /* as it lies in the fatbin */
	uint64_t size;          /* bytes once unpacked */
};

/* Walks a fatbin's entries. */
struct fdry_fatbin_iter {
	struct fdry_span entries; /* all of them */
	uint64_t pos;
	uint32_t count;
};

/* @bytes: a fatbin, and possibly more behind it. FDRY_E_BADCODE where it is none or leaves @bytes. */
int fdry_fatbin_init(struct fdry_span bytes, struct fdry_fatbin_iter *ret) __must_check;
/* The next entry into @ret with *@more true, or *@more false behind the last. */
int fdry_fatbin_next(struct fdry_fatbin_iter *it, struct fdry_fatbin_entry *ret, bool *more) __must_check;
/* An entry's bytes; release @ret with fdry_devcode_release(), it may point into the fatbin. */
int fdry_fatbin_unpack(const struct fdry_fatbin_entry *e, struct fdry_devcode *ret) __must_check;

/**
 * fdry_devcode_init() - The code that the driver runs, out of what a library was loaded from.
 * @data: a fatbin wrapper, fatbin, cubin, PTX text or object of the software driver
 * @len: bytes at @data; 0 for a wrapper, whose pointer is only right in the process that was linked with it, and
 *       allowed for a fatbin, whose header says how long it is
 * @cc: 10 * major + minor compute capability of the device
 *
 * Of a fatbin the cubin for the same major version and the highest minor version that is
 * not above the device's, where code for exactly this architecture (sm_90a) goes before
 * code for its family (sm_100f) and that before plain code; without any, the PTX for the
 * highest architecture that is not above the device's. Of cubins that suit equally well, the
 * first. Nothing is copied unless it was compressed, so @data must outlive @ret.
 *
 * Errors: FDRY_E_BADCODE (malformed, two texts suit equally well, or what suits is a
 * relocatable object, which the driver links while it loads it), FDRY_E_NOENT (no
 * entry suits), FDRY_E_LIMIT, FDRY_E_NOMEM.
 */
int fdry_devcode_init(const void *data, size_t len, unsigned int cc, struct fdry_devcode *ret) __must_check;
void fdry_devcode_release(struct fdry_devcode *code);

#endif
