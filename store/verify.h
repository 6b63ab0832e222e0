/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - what the parent (verify.c) and its children (verify_child.c) share.
 *
 * LMDB has no checksums, and pages with flipped bits can send it anywhere: whatever reads the
 * store is a child with an environment of its own, whose crash is a finding. Counts, and how
 * far it came, lie in memory that both see; findings come through a pipe.
 */
#ifndef FDRY_STORE_VERIFY_H
#define FDRY_STORE_VERIFY_H

#include "store/internal.h"

enum fdry_verify_stage { FDRY_VERIFY_TABLES, FDRY_VERIFY_OBJECTS, FDRY_VERIFY_REFS, FDRY_VERIFY_STAGES };

/* Through the pipe; less than PIPE_BUF, so that it arrives whole. */
struct fdry_verify_message {
	enum fdry_finding_kind kind;
	struct fdry_oid oid, other;
	uint8_t has_oid, has_other;
	char text[400];
};

/* In memory that is shared. */
struct fdry_verify_shared {
	struct fdry_verify_report report;
	enum fdry_verify_stage stage;
	uint64_t bytes_total; /* of all objects, as their records say */
	/* Objects before @at are done with. Where a child crashed while several threads were at work, the next one goes on
	 * alone up to @until, and so finds out which object it was. */
	struct fdry_oid at, until;
	bool alone;
	bool inside; /* looking at the object @at, alone; else at several, or for the next */
	bool done;   /* the child came to its end */
	int err;     /* why it could not work */
	char text[FDRY_SENTENCE_MAX];
};

struct fdry_verify {
	struct fdry_verify_shared *shared;
	struct fdry_idset damaged; /* what the stages before have found; inherited by children */
	unsigned int threads;
	int pipe;
};

/* In the child: do the stage. The process is to end then: nothing is given back. */
void fdry_verify_child(struct fdry_verify *v, const char *path);
/* The id behind @oid, with what is behind byte number @byte zero; false where there is none. */
bool fdry_verify_next(struct fdry_oid *oid, int byte);

#endif
