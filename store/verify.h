/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - shared by the parent (verify.c) and its children (verify_child.c).
 *
 * LMDB has no checksums, and pages with flipped bits can crash it. So only child processes, each
 * with its own environment, read the store; a crash is a fault. Counts and progress lie in shared
 * memory; faults come through a pipe.
 *
 * A fast verification compares chunks with the fingerprints that manifests record. The store does
 * not know the format of manifests: its caller passes a function that reads one.
 */
#ifndef FDRY_STORE_VERIFY_H
#define FDRY_STORE_VERIFY_H

#include "store/internal.h"

enum fdry_verify_stage {
	FDRY_VERIFY_TABLES,
	FDRY_VERIFY_MANIFESTS, /* of a fast verification alone: read the fingerprints */
	FDRY_VERIFY_OBJECTS,
	FDRY_VERIFY_PAGES, /* one page of each value: in memory behind the objects */
	FDRY_VERIFY_REFS,
	FDRY_VERIFY_STAGES
};

/* Through the pipe; less than PIPE_BUF, so that it arrives whole. */
struct fdry_verify_message {
	enum fdry_fault_kind kind;
	struct fdry_oid oid, other;
	uint8_t has_oid, has_other;
	char text[400];
};

/* In memory that is shared. */
struct fdry_verify_shared {
	struct fdry_verify_report report;
	enum fdry_verify_stage stage;
	uint64_t bytes_total; /* of all objects, as their records say */
	uint64_t bytes_done;  /* for the progress: also of objects that are not reported yet */
	uint64_t objects_total;
	/* Objects before @at are done. If a child crashes, the next one checks smaller slices. If
	 * that crashes, the next one checks the objects up to @until, the last that was listed, one
	 * by one, and so finds the object that crashed it. */
	struct fdry_oid at, until;
	bool small, alone;
	bool inside; /* checking the object @at alone */
	bool done;   /* the child ended regularly */
	bool tables_sound; /* a child has read them all, and found no damage */
	int err;     /* why the check itself failed */
	char text[FDRY_SENTENCE_MAX];
};

/* A fingerprint that manifests record of a chunk. */
struct fdry_verify_print {
	struct fdry_oid oid;
	struct fdry_fingerprint value;
	bool used;
	bool wrong; /* the chunk is whole and has another fingerprint */
};

/* verify_prints.c: a table of them, in memory that is shared. */
struct fdry_verify_prints {
	size_t cap, count;
	bool wrong; /* some are */
	struct fdry_verify_print slots[];
};
/* @objects: in the store. */
int fdry_verify_prints_new(uint64_t objects, struct fdry_verify_prints **ret) __must_check;
void fdry_verify_prints_free(struct fdry_verify_prints *p);
/* NULL if the table is full. */
struct fdry_verify_print *fdry_verify_prints_add(struct fdry_verify_prints *p,
						 const struct fdry_oid *oid,
						 struct fdry_fingerprint value);
/* The next fingerprint of chunk @oid that differs from those before; NULL: none. @before: NULL at
 * first. */
struct fdry_verify_print *fdry_verify_prints_next(struct fdry_verify_prints *p,
						  const struct fdry_oid *oid,
						  const struct fdry_verify_print *before);

struct fdry_verify {
	struct fdry_verify_shared *shared;
	struct fdry_verify_prints *prints; /* NULL: every object is hashed */
	fdry_verify_read_fn read;
	struct fdry_idset damaged; /* found by earlier stages; children inherit it */
	unsigned int threads;
	int pipe;
};

/* In the child: run the stage. Nothing is freed, since the process ends then. */
void fdry_verify_child(struct fdry_verify *v, const char *path);
/* The next id after @oid whose bytes behind number @byte are zero; false if there is none. */
bool fdry_verify_next(struct fdry_oid *oid, int byte);

#endif
