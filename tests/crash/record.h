/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - records the changes that processes make to files below a directory, in order, and
 * computes the states that a power cut could leave.
 *
 * The model: a write, a change of size or of a directory may reach the disk at any time after it
 * was made. It has reached the disk when a sync of that file or directory that began later has
 * returned. Before that, any subset of the changes may be on the disk, in any order between files,
 * and pages in parts of 512 bytes. A write through a descriptor with O_DSYNC is a write and a sync.
 * Only a sync of the directory syncs names. Bytes that were written through a shared map may have
 * any value.
 */
#ifndef FDRY_TESTS_CRASH_RECORD_H
#define FDRY_TESTS_CRASH_RECORD_H

#include "tests/crash/io.h"
#include "tests/crash/work.h"

/* Syncs that a broken disk forgets; the tests must detect that. */
enum rec_broken { REC_SOUND, REC_NO_SYNC, REC_NO_META, REC_NO_DIR };

/* Begin to record this process and its children. Files below the directory @root count as
 * durable. */
int rec_start(const char *root, enum rec_broken broken);
/* Stop recording; calls continue to work. */
void rec_stop(void);
/* For struct worker: record a promise about a name. */
void rec_note(struct worker *w, uint32_t name);

/* --- states --- */

/* A change that may or may not have happened: a page's worth of a write, or another call. */
struct rec_unit {
	uint32_t rec;      /* number of the call */
	uint64_t from, to; /* of a write: the part of its bytes */
};

/* A walk through the recording, from one sync to the next. */
struct rec_walk {
	uint64_t at, count;      /* calls passed, of all */
	struct rec_unit *units;  /* the units that are pending at this point */
	size_t nunits;
	struct work_notes names[WORK_WORKERS_MAX]; /* the promises at this point */
	struct rec_fs *fs;       /* the durable state; belongs to record.c */
};

int rec_walk_start(struct rec_walk *w);
/* Advance to the next sync that would make something durable, or to the end. Returns false after
 * the end. */
bool rec_walk_next(struct rec_walk *w);
void rec_walk_end(struct rec_walk *w);

/*
 * rec_state() - Make a state in the empty directory @to.
 * @take: for each unit, its 512-byte parts that reached the disk (bit n: part n); 0: none
 * @random: state of a generator, for bytes written through maps
 */
int rec_state(struct rec_walk *w, const uint8_t *take, uint64_t *random, const char *to);
/* "write 4096 at 8192 of data.mdb" */
void rec_unit_text(const struct rec_walk *w, const struct rec_unit *u, char *text, size_t len);

struct rec_counts {
	uint64_t calls, writes, syncs, names, bytes;
};
void rec_count(struct rec_counts *ret);

#endif
