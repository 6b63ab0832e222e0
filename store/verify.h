/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - shared by the parent (verify.c) and its children (verify_child.c).
 *
 * LMDB has no checksums, and pages with flipped bits can crash it. So only child processes, each
 * with its own environment, read the store; a crash is a fault. Counts and progress lie in shared
 * memory; faults come through a pipe.
 */
#ifndef FDRY_STORE_VERIFY_H
#define FDRY_STORE_VERIFY_H

#include "store/internal.h"

enum fdry_verify_stage {
	FDRY_VERIFY_TABLES,
	FDRY_VERIFY_OBJECTS,
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
	/* Objects before @at are done. If a child crashes while several threads work, the next
	 * child repeats the objects up to
	 * @until one by one, and so finds the object that crashed it. */
	struct fdry_oid at, until;
	bool alone;
	bool inside; /* checking the object @at alone */
	bool done;   /* the child ended regularly */
	int err;     /* why the check itself failed */
	char text[FDRY_SENTENCE_MAX];
};

struct fdry_verify {
	struct fdry_verify_shared *shared;
	struct fdry_idset damaged; /* found by earlier stages; children inherit it */
	unsigned int threads;
	int pipe;
};

/* In the child: run the stage. Nothing is freed, since the process ends then. */
void fdry_verify_child(struct fdry_verify *v, const char *path);
/* The next id after @oid whose bytes behind number @byte are zero; false if there is none. */
bool fdry_verify_next(struct fdry_oid *oid, int byte);

#endif
