/* SPDX-License-Identifier: Apache-2.0 */
/* record_fs.h - the format of the recording, which record.c writes and record_fs.c reads. */
#ifndef FDRY_TESTS_CRASH_RECORD_FS_H
#define FDRY_TESTS_CRASH_RECORD_FS_H

#include <pthread.h>

#include "tests/crash/record.h"

#define REC_MAX (1u << 17)
#define REC_BYTES (3ull << 30)
#define REC_INODES 4096
#define REC_ROOT 1 /* the root's number among inodes */

enum rec_type { REC_WRITE, REC_SIZE, REC_SYNC, REC_ENTRY, REC_NOTE };

/* A name in a directory; inode 0: the name is removed. */
struct rec_entry {
	uint32_t dir, inode;
	char name[56];
};

struct rec {
	enum rec_type type;
	uint32_t inode;           /* of all but entries and notes */
	uint64_t at, len, data;   /* a write; a size is @at */
	uint64_t begin;           /* a sync: calls before this one */
	struct rec_entry entry[2]; /* the entries that change together; dir 0: none */
	uint32_t worker, name;    /* a note ... */
	struct work_name state;   /* ... and the promise */
};

struct rec_inode {
	uint64_t ino;
	uint64_t born; /* ns; 0: not known */
	bool dir, mapped;
};

struct rec_log {
	pthread_mutex_t lock;
	uint64_t dev, count, used;
	uint64_t initial; /* the number of calls that stand for the initial files */
	uint32_t inodes;
	enum rec_broken broken;
	struct rec_inode inode[REC_INODES];
	struct rec rec[REC_MAX];
	uint8_t bytes[REC_BYTES];
};

const struct rec_log *rec_the_log(void);

#endif
