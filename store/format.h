/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - the records on disk, as offsets; Documentation/format/store.rst is the specification.
 *
 * Values in LMDB can lie at odd addresses. So they are never read as structs: fdry_span_at(),
 * fdry_get32() and similar functions read each field. Reserved bytes are written as zero and
 * checked to be zero. A field, once shipped, never changes its meaning.
 */
#ifndef FDRY_STORE_FORMAT_H
#define FDRY_STORE_FORMAT_H

/* Advice for damaged pages, which cannot be repaired in place. */
#define FDRY_DAMAGE_ADVICE \
	"export the images that can still be read and import them into a new store, or put a " \
	"backup in its place"

/* meta, key "format": what makes an LMDB environment a store. */
#define FDRY_META_FORMAT "format"
#define FDRY_FORMAT_MAGIC "FOUNDRY STORE\r\n\x1a" /* 16 bytes, no terminator */
#define FDRY_FORMAT_MAGIC_SIZE 16
#define FDRY_FORMAT_VERSION 2
#define FDRY_FORMAT_AT_VERSION 16  /* u32 */
#define FDRY_FORMAT_AT_INCOMPAT 24 /* u64: features without which the store must not be touched */
#define FDRY_FORMAT_AT_COMPAT 32   /* u64: features that may be ignored */
#define FDRY_FORMAT_AT_ID 40       /* 16 random bytes, different in every store */
#define FDRY_FORMAT_ID_SIZE 16
#define FDRY_FORMAT_SIZE 64
#define FDRY_FORMAT_INCOMPAT_KNOWN 0ull

/* meta, key "changes": u64, how often refs were set or deleted. */
#define FDRY_META_CHANGES "changes"

/* meta, key "collecting": one byte, 1, while a collection runs or after one died. */
#define FDRY_META_COLLECTING "collecting"

/* meta, key "limit": u64, bytes that the store's tables may take; no record: no limit. */
#define FDRY_META_LIMIT "limit"

/* meta, key "pin", a zero byte, the key of a ref, a holder (u64): one byte, 1: see pins.c. */
#define FDRY_META_PIN "pin"

/* objects, key: id. */
#define FDRY_RECORD_AT_KINDS 0  /* u16: bit n: kind number n; never 0 */
#define FDRY_RECORD_AT_CODEC 2  /* u8: of enum fdry_codec */
#define FDRY_RECORD_AT_FLAGS 3  /* u8: 0 */
#define FDRY_RECORD_AT_NLINKS 4 /* u32 */
#define FDRY_RECORD_AT_SIZE 8   /* u64: bytes */
#define FDRY_RECORD_AT_STORED 16 /* u64: bytes in data */
#define FDRY_RECORD_AT_ZERO 24  /* u64: 0 */
#define FDRY_RECORD_AT_LINKS 32 /* ids, ascending, none twice */

/* data, key: id. The object's bytes, by the record's codec. */
enum fdry_codec {
	FDRY_CODEC_PLAIN = 0,
	FDRY_CODEC_ZSTD = 1, /* one frame, with its content size */
	FDRY_CODEC_NONE = 2, /* in quarantine: there are no bytes, since they were damaged */
};

/* refs, key: name, a zero byte, identity (32 bytes). */
#define FDRY_REF_KEY_MAX (255 + 1 + 32)
#define FDRY_REF_AT_OID 0
#define FDRY_REF_AT_CHANGE 32 /* u64: the value of "changes" that setting it made */
#define FDRY_REF_AT_FLAGS 40  /* u32: of enum fdry_ref_flags */
#define FDRY_REF_AT_ZERO 44   /* 20 bytes: 0 */
#define FDRY_REF_SIZE 64
enum fdry_ref_flags {
	FDRY_REF_PINNED = 1 << 0, /* never evicted */
};

/* The file "used" in the store's directory: a line for each load or seal, "ID TIME\n". */
#define FDRY_ATIME_DIGITS 10 /* of the time: seconds since 1970 */
#define FDRY_ATIME_LINE (64 + 1 + FDRY_ATIME_DIGITS + 1)

/* The file "verified" in the store's directory: mapped objects that were checked during this boot.
 */
#define FDRY_VERIFIED_MAGIC "FDRYSEEN"
#define FDRY_VERIFIED_VERSION 2
#define FDRY_VERIFIED_AT_VERSION 8 /* u32, then a zero u32 */
#define FDRY_VERIFIED_AT_BOOT 16   /* 16 bytes: the kernel's boot id */
#define FDRY_VERIFIED_AT_STORE 32  /* 16 bytes: the store's id */
#define FDRY_VERIFIED_AT_DEV 48    /* u64: device ... */
#define FDRY_VERIFIED_AT_INO 56    /* u64: ... and inode of data.mdb, so that copies do not count */
#define FDRY_VERIFIED_AT_COUNT 64  /* u64 */
/* u64: nanoseconds since 1970 when data.mdb was changed last ... */
#define FDRY_VERIFIED_AT_CHANGED 72
#define FDRY_VERIFIED_AT_TXN 80    /* u64: ... and its latest transaction */
#define FDRY_VERIFIED_AT_EPOCH 88  /* u32, changed by cancelling the note; and its complement */
#define FDRY_VERIFIED_AT_IDS 96    /* ids, ascending */

/* The file "checked" in the store's directory: the state of data.mdb whose pages were checked. */
#define FDRY_CHECKED_MAGIC "FDRYCHKD"
#define FDRY_CHECKED_VERSION 1
#define FDRY_CHECKED_AT_VERSION 8      /* u32, then a zero u32 */
#define FDRY_CHECKED_AT_BOOT 16        /* 16 bytes: the kernel's boot id */
#define FDRY_CHECKED_AT_DEV 32         /* u64: device ... */
#define FDRY_CHECKED_AT_INO 40         /* u64: ... and inode of data.mdb */
#define FDRY_CHECKED_AT_CHANGED 48     /* u64: as in the file "verified" ... */
#define FDRY_CHECKED_AT_TXN 56         /* u64: ... and this, too */
#define FDRY_CHECKED_AT_FINGERPRINT 64 /* 16 bytes: of all bytes before it */
#define FDRY_CHECKED_SIZE 80

/* A file in the folder "leases": a head, and ids in the order in which they were noted. */
#define FDRY_LEASE_MAGIC "FDRYLEAS"
#define FDRY_LEASE_VERSION 1
#define FDRY_LEASE_AT_VERSION 8 /* u32, then 20 zero bytes */
#define FDRY_LEASE_AT_IDS 32

#endif
