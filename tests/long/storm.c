// SPDX-License-Identifier: Apache-2.0
/*
 * storm.c - many processes that read one store at the same time, some more than LMDB has places
 * for, while another writes.
 *
 * A case is one storm: each process opens the store, begins sessions, and in all of them reads an
 * object whose bytes are known and an image by its ref; meanwhile one process seals, renames and
 * collects. Every session must begin and read right, and when the storm is over a collection and a
 * verification find nothing. Some readers are killed with their sessions open.
 */
#include <signal.h>

#include "foundry.h"
#include "tests/lib/store.h"

#include "tests/long/long.h"

#define READERS_MAX 24
#define SESSIONS_MAX 100
#define BYTES 5000

enum { CALM, CROWDED };

static char place[300];

static void place_make(void)
{
	struct fdry_store *s;

	snprintf(path, sizeof(path), "%s/store", long_dir);
	s = store_make();
	seal(s, 1, 8, BYTES, "kept");
	fdry_store_close(s);
}

static void make(void)
{
	long_checked(place_make);
}

static void begin(void)
{
	snprintf(place, sizeof(place), "%s/store", long_dir);
}

static int reported(const char *what)
{
	dprintf(2, "%s: %s\n", what, fdry_last_error());
	return 1;
}

static int session_read(struct fdry_store *s, struct fdry_reader *g, uint64_t seed)
{
	uint8_t want[BYTES];
	struct fdry_buf got = { 0 };
	struct fdry_oid oid;
	int bad;

	noise(seed, want, BYTES);
	if (fdry_oid_of(want, BYTES, &oid) || fdry_reader_copy(g, &oid, &got))
		return reported("an object cannot be read");
	bad = got.len != BYTES || memcmp(got.data, want, BYTES);
	fdry_buf_release(&got);
	if (bad)
		dprintf(2, "an object has wrong bytes\n");
	return bad || (fdry_store_resolve(s, "kept", &oid) && reported("a ref cannot be read"));
}

/* All sessions open at the same time. */
static int reader(uint64_t sessions, uint64_t seed, bool stays)
{
	struct fdry_reader *g[SESSIONS_MAX];
	struct fdry_store *s;
	uint64_t i;
	int bad = 0;

	if (fdry_store_open(place, 0, &s))
		return reported("the store cannot be opened");
	for (i = 0; i < sessions && !bad; i++)
		bad = fdry_reader_begin(s, &g[i]) ? reported("a session cannot begin")
						  : session_read(s, g[i], 1 + (seed + i) % 8);
	if (stays)
		pause();
	while (i--)
		if (!bad)
			fdry_reader_end(g[i]);
	if (!bad)
		fdry_store_close(s);
	return bad;
}

static int writer(uint64_t seed)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	uint8_t data[3000];
	struct fdry_oid link, oid;
	struct fdry_writer *p;
	int i, err;

	if (fdry_store_open(place, 0, &s))
		return reported("the store cannot be opened");
	for (i = 0; i < 6; i++) {
		noise(seed + (uint64_t)i, data, sizeof(data));
		if (fdry_writer_begin(s, &p))
			return reported("a seal cannot begin");
		if (fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0,
					   &link) ||
		    fdry_writer_commit(p, data, 20, &link, 1, "new", &oid, NULL))
			return reported("a seal fails");
		err = fdry_store_gc(s, NULL, &r);
		if (err && err != -FDRY_E_LOCKED)
			return reported("a collection fails");
	}
	fdry_store_close(s);
	return 0;
}

static pid_t start(uint32_t nr, uint64_t sessions, uint64_t seed, bool stays)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	long_limit(60);
	_exit(nr ? reader(sessions, seed, stays) : writer(seed));
}

static bool sound_after(void)
{
	struct fdry_verify_report report = { .sz = sizeof(report) };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	bool good;

	if (fdry_store_verify(place, NULL, &report) || report.faults) {
		dprintf(2, "afterwards the store has %llu faults\n",
			(unsigned long long)report.faults);
		return false;
	}
	if (fdry_store_open(place, 0, &s))
		return !reported("afterwards the store cannot be opened");
	good = !fdry_store_gc(s, NULL, &r) || !reported("afterwards nothing can be collected");
	fdry_store_close(s);
	return good && !reader(8, 0, false);
}

static int run_case(uint64_t nr)
{
	uint64_t readers = 1 + long_below(READERS_MAX), sessions = 1 + long_below(SESSIONS_MAX),
		 seed = 1000 + long_below(1u << 20), i;
	pid_t pids[READERS_MAX + 1];
	bool killed[READERS_MAX + 1], bad = false;
	int status;

	(void)nr;
	for (i = 0; i <= readers; i++) {
		killed[i] = i && !long_below(8);
		pids[i] = start((uint32_t)i, sessions, seed, killed[i]);
	}
	for (i = 0; i <= readers; i++) {
		if (killed[i])
			continue;
		bad |= waitpid(pids[i], &status, 0) != pids[i] || status;
	}
	for (i = 0; i <= readers; i++)
		if (killed[i]) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], &status, 0);
			bad |= !WIFSIGNALED(status);
		}
	if (bad || !sound_after())
		return LONG_FAULT;
	return readers * sessions > 1000 ? CROWDED : CALM;
}

int main(int argc, char **argv)
{
	const struct long_test t = { .name = "storm", .sample = 10, .all = 2000, .together = 1,
				     .seconds = 120, .prepare = make, .begin = begin,
				     .run = run_case, .ends = { "storms",
					       "with more readers than LMDB has places for" } };

	return long_main(argc, argv, &t);
}
