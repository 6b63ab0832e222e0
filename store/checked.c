// SPDX-License-Identifier: Apache-2.0
/*
 * checked.c - a note for other processes: the state of data.mdb whose pages a writer has checked.
 *
 * A writer checks every page before LMDB changes any (view_check.c). Without this note, processes
 * that write in turns would each do that for every transaction, which takes longer the more objects
 * a store has.
 *
 * The note is a small file. A process reads and writes it with the writers' lock held, so it needs
 * no lock of its own. It is valid for one boot and one state of data.mdb, and has a fingerprint, so
 * that half a note is invalid. A commit carries a valid note on to the new state. A process that
 * finds damage removes the file, which no process creates again before the next check.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/fingerprint.h"
#include "lib/log.h"
#include "store/internal.h"

#define CHECKED_FILE "checked"

static void state_set(uint8_t note[FDRY_CHECKED_SIZE], const struct fdry_db_state *state)
{
	struct fdry_fingerprint f;

	fdry_set64(note + FDRY_CHECKED_AT_DEV, state->dev);
	fdry_set64(note + FDRY_CHECKED_AT_INO, state->ino);
	fdry_set64(note + FDRY_CHECKED_AT_CHANGED, state->changed);
	fdry_set64(note + FDRY_CHECKED_AT_TXN, state->txn);
	f = fdry_fingerprint_of(note, FDRY_CHECKED_AT_FINGERPRINT);
	fdry_set64(note + FDRY_CHECKED_AT_FINGERPRINT, f.a);
	fdry_set64(note + FDRY_CHECKED_AT_FINGERPRINT + 8, f.b);
}

static bool note_make(const struct fdry_db_state *state, uint8_t ret[FDRY_CHECKED_SIZE])
{
	memset(ret, 0, FDRY_CHECKED_SIZE);
	memcpy(ret, FDRY_CHECKED_MAGIC, 8);
	fdry_set32(ret + FDRY_CHECKED_AT_VERSION, FDRY_CHECKED_VERSION);
	if (!fdry_boot_id(ret + FDRY_CHECKED_AT_BOOT) || !state->ino)
		return false;
	state_set(ret, state);
	return true;
}

static bool note_read(int fd, uint8_t ret[FDRY_CHECKED_SIZE])
{
	return pread(fd, ret, FDRY_CHECKED_SIZE, 0) == FDRY_CHECKED_SIZE;
}

static void note_write(int fd, const uint8_t note[FDRY_CHECKED_SIZE])
{
	if (fdry_pwrite(fd, note, FDRY_CHECKED_SIZE, 0))
		fdry_debug("cannot note that pages were checked: %s", strerror(errno));
}

bool fdry_checked_is(const struct fdry_dir *dir, const struct fdry_db_state *state)
{
	uint8_t note[FDRY_CHECKED_SIZE], want[FDRY_CHECKED_SIZE];
	int fd = fdry_file_get(dir->fd, CHECKED_FILE, O_RDONLY);
	bool is;

	if (fd < 0)
		return false;
	is = note_make(state, want) && note_read(fd, note) && !memcmp(note, want, sizeof(note));
	close(fd);
	return is;
}

void fdry_checked_set(const struct fdry_dir *dir, const struct fdry_db_state *state)
{
	uint8_t note[FDRY_CHECKED_SIZE];
	int fd;

	if (dir->fixed || !note_make(state, note))
		return;
	fd = fdry_file_open(dir, CHECKED_FILE, O_RDWR);
	if (fd < 0) {
		fdry_debug("cannot note that pages were checked: %s", strerror(errno));
		return;
	}
	note_write(fd, note);
	close(fd);
}

/* A note of an earlier boot stays invalid, so a commit need not read the boot id. */
void fdry_checked_carry(const struct fdry_dir *dir, const struct fdry_db_state *from,
			const struct fdry_db_state *to)
{
	uint8_t note[FDRY_CHECKED_SIZE], before[FDRY_CHECKED_SIZE];
	int fd = fdry_file_get(dir->fd, CHECKED_FILE, O_RDWR);

	if (fd < 0)
		return;
	if (note_read(fd, note)) {
		memcpy(before, note, sizeof(note));
		state_set(before, from);
		if (!memcmp(note, before, sizeof(note))) {
			state_set(note, to);
			note_write(fd, note);
		}
	}
	close(fd);
}

void fdry_checked_forget(const struct fdry_dir *dir)
{
	if (!dir->fixed)
		(void)unlinkat(dir->fd, CHECKED_FILE, 0);
}
