// SPDX-License-Identifier: Apache-2.0
/*
 * calls.c - foundry-store, command by command, while calls that change files fail.
 *
 * A case makes the Nth of those calls of a command fail, or it and all behind it, with ENOSPC or
 * EIO. A command that reports success has done the same as without failures. A command that reports
 * an error has changed nothing, or has completed. In both cases the store verifies without a fault,
 * and a written file is the old or the new one.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "api/cmd/cmd.h"
#include "tests/crash/io.h"
#include "tests/lib/image.h"

#include "tests/long/long.h"

#define CALLS 400 /* more than any of the commands makes */
#define SPARE 8    /* calls that one may make more than the last time */

enum { NOT_REACHED, SUCCEEDED, UNCHANGED, DONE_ALL_THE_SAME, PARTLY };

/* COMMAND(name, has a store at first, may stop halfway, arguments): @ stands for the test's
 * directory. */
#define COMMANDS(X) \
	X(tag, true, false, "tag", "img", "x/y") \
	X(rm, true, false, "rm", "-y", "img") X(gc, true, false, "gc", "-y") \
		X(pin, true, false, "pin", "img") X(limit, true, false, "limit", \
						    "1G") X(evict, true, true, "evict", "-y", "1") \
			X(import, true, false, "import", "@/pack") X(import_new, false, false, \
								     "import", "@/pack") \
				X(export, true, false, "export", "img", "again", "-o", "@/out") \
					X(dump, true, false, "dump", "-o", "@/out") \
						X(verify, true, false, "verify") X(init, false, \
										   false, "init") \
							X(undump, true, false, "undump", "@/text")

struct command {
	const char *name;
	bool store, stops;
	const char *args[8];
};

static const struct command commands[] = {
#define X(name, store, stops, ...) { #name, store, stops, { __VA_ARGS__ } },
	COMMANDS(X)
#undef X
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))
#define CASES (COMMAND_COUNT * 4 * CALLS)

static char place[300];

static const char *file_of(const char *what)
{
	static char names[4][300];
	static unsigned int next;
	char *name = names[next++ % 4];

	snprintf(name, 300, "%s/%s", long_dir, what);
	return name;
}

/* --- failing --- */

static struct {
	uint64_t left; /* calls until one fails */
	bool on;       /* all later calls fail, too */
	int error;
	bool reached;
	struct seen {
		bool reached;
		_Atomic uint64_t calls; /* that count */
	} *seen;       /* by all processes of the case: some commands fork */
} fault;

static void seen_make(void)
{
	fault.seen = mmap(NULL, sizeof(*fault.seen), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fault.seen == MAP_FAILED)
		_exit(3);
}

static bool counts(const struct io_call *c)
{
	switch (c->op) {
	case IO_MAP:
		return false;
	case IO_WRITE:
		return c->fd > 2;
	case IO_OPEN:
		return c->flags & (O_CREAT | O_WRONLY | O_RDWR) && strncmp(c->name, "/dev/", 5);
	default:
		return true;
	}
}

static void enter(struct io_call *c)
{
	if (!counts(c))
		return;
	fault.seen->calls++;
	if (fault.reached && !fault.on)
		return;
	if (!fault.reached && --fault.left)
		return;
	fault.reached = fault.seen->reached = true;
	c->fail = fault.error;
}

static const struct io_hooks hooks = { enter, NULL };

/* --- commands --- */

/* In a child: its exit status. */
static int command_run(const char *const *args, const struct io_hooks *with)
{
	char *argv[12] = { "foundry-store", "-q", "-s", place }, expanded[8][320];
	struct fdry_store *s = NULL;
	struct cmd_args a;
	int n, status, flags;

	for (n = 0; args[n]; n++) {
		snprintf(expanded[n], sizeof(expanded[n]), "%s%s", *args[n] == '@' ? long_dir : "",
			 args[n] + (*args[n] == '@'));
		argv[4 + n] = expanded[n];
	}
	optind = 1;
	io_hooks = with;
	status = cmd_args_parse(4 + n, argv, &a);
	if (status < 0) {
		flags = a.cmd->open;
		status = flags >= 0 && fdry_store_open(a.store, (unsigned int)flags, &s)
				 ? CMD_FAILED
				 : a.cmd->fn(&a, s);
		fdry_store_close(s);
	}
	io_hooks = NULL;
	return status;
}

/* Returns the result of command_run(), or -1 if a signal ended the child. */
static int in_process(const char *const *args, const struct io_hooks *with)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		long_limit(30);
		if (!long_alone)
			stderr = fopen("/dev/null", "w");
		if (!stderr || !freopen("/dev/null", "w", stdout))
			_exit(63);
		_exit(command_run(args, with));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void dump_to(const char *name)
{
	const char *args[] = { "dump", "-o", name, NULL };

	if (in_process(args, NULL))
		(void)unlink(name);
}

static bool same(const char *one, const char *other)
{
	size_t len[2] = { 0, 0 };
	uint8_t *bytes[2] = { NULL, NULL };
	bool equal;

	if (access(one, F_OK) || access(other, F_OK))
		return access(one, F_OK) && access(other, F_OK);
	bytes[0] = long_read_file(one, &len[0]);
	bytes[1] = long_read_file(other, &len[1]);
	equal = len[0] == len[1] && !memcmp(bytes[0], bytes[1], len[0]);
	free(bytes[0]);
	free(bytes[1]);
	return equal;
}

/* --- the commands' stores and files --- */

static void copy(const char *from, const char *to)
{
	size_t len;
	uint8_t *bytes = long_read_file(from, &len);

	long_write_file(to, bytes, len);
	free(bytes);
}

static void place_make(const struct command *c)
{
	size_t len;
	uint8_t *bytes = long_read_file(file_of("store/data.mdb"), &len);

	long_remove(place);
	if (c->store)
		long_write_store(place, bytes, len);
	free(bytes);
	long_write_file(file_of("out"), "old", 3);
}

static void seal_images(void)
{
	static const char *const pack_args[] = { "export", "packed", "-o", "@/pack", NULL },
				 *const rm_args[] = { "rm", "-y", "packed", NULL },
				 *const text_args[] = { "dump", "packed", "-o", "@/text", NULL };
	static struct work w;

	snprintf(path, sizeof(path), "%s/store", long_dir);
	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	ok(work_seal(&w, "img"));
	cuda_ok(cuMemsetD32Async, w.b, 9, 100, w.stream);
	cuda_ok(cuStreamSynchronize, w.stream);
	ok(work_seal(&w, "again"));
	cuda_ok(cuMemsetD32Async, w.b, 8, 100, w.stream);
	cuda_ok(cuStreamSynchronize, w.stream);
	ok(work_seal(&w, "packed"));
	fdry_store_close(w.store);
	snprintf(place, sizeof(place), "%s/store", long_dir);
	ck_assert_int_eq(in_process(pack_args, NULL), 0);
	ck_assert_int_eq(in_process(text_args, NULL), 0);
	ck_assert_int_eq(in_process(rm_args, NULL), 0);
}

static void place_set(void)
{
	snprintf(place, sizeof(place), "%s/place", long_dir);
}

/* Make the expected results of each command without a failure: the store as text, and the output
 * file. */
static void make(void)
{
	uint64_t counted[COMMAND_COUNT];
	char name[64];
	size_t i;

	long_checked(seal_images);
	place_set();
	seen_make();
	fault.left = UINT64_MAX;
	for (i = 0; i < COMMAND_COUNT; i++) {
		place_make(&commands[i]);
		snprintf(name, sizeof(name), "%s.before", commands[i].name);
		dump_to(file_of(name));
		fault.seen->calls = 0;
		if (in_process(commands[i].args, &hooks))
			_exit(3);
		counted[i] = fault.seen->calls;
		snprintf(name, sizeof(name), "%s.out", commands[i].name);
		copy(file_of("out"), file_of(name));
		snprintf(name, sizeof(name), "%s.after", commands[i].name);
		dump_to(file_of(name));
	}
	long_write_file(file_of("counted"), counted, sizeof(counted));
}

static bool store_sound(void)
{
	struct fdry_verify_report report = { .sz = sizeof(report) };
	char data[320];

	snprintf(data, sizeof(data), "%s/data.mdb", place);
	if (access(data, F_OK))
		return true;
	if (!fdry_store_verify(place, NULL, &report) && !report.faults)
		return true;
	dprintf(2, "the store has %llu faults: %s\n", (unsigned long long)report.faults,
		fdry_last_error());
	return false;
}

static int judge(const struct command *c, bool succeeded)
{
	char before[64], after[64], out[64];
	bool old, new;

	snprintf(before, sizeof(before), "%s.before", c->name);
	snprintf(after, sizeof(after), "%s.after", c->name);
	snprintf(out, sizeof(out), "%s.out", c->name);
	dump_to(file_of("now"));
	new = same(file_of("now"), file_of(after));
	/* A command that makes the store may leave an empty one. */
	old = same(file_of("now"), file_of(before)) ||
	      (!c->store && same(file_of("now"), file_of("init.after")));
	if (succeeded && (!new || !same(file_of("out"), file_of(out)))) {
		dprintf(2, "%s reports success and has not done it\n", c->name);
		return LONG_FAULT;
	}
	if (succeeded)
		return SUCCEEDED;
	if (!same(file_of("out"), file_of(out))) {
		long_write_file(file_of("old"), "old", 3);
		if (!same(file_of("out"), file_of("old"))) {
			dprintf(2, "%s left a file that is neither the old nor the new one\n",
				c->name);
			return LONG_FAULT;
		}
	}
	if (old)
		return UNCHANGED;
	if (!new && !c->stops) {
		dprintf(2, "%s failed, and the store is neither as it was nor as it should be\n",
			c->name);
		return LONG_FAULT;
	}
	return new ? DONE_ALL_THE_SAME : PARTLY;
}

static int run_case(uint64_t nr)
{
	const uint64_t mixed =
		nr * 7919 %
		CASES; /* a sample has some of each command, early calls and late ones */
	const struct command *c = &commands[mixed % COMMAND_COUNT];
	uint64_t *counted;
	size_t len;
	int status;

	nr = mixed / COMMAND_COUNT;
	fault.on = nr & 1;
	fault.error = nr & 2 ? EIO : ENOSPC;
	fault.left = nr / 4 + 1;
	counted = (uint64_t *)long_read_file(file_of("counted"), &len);
	if (fault.left > counted[c - commands] + SPARE)
		return NOT_REACHED;
	place_set();
	place_make(c);
	seen_make();
	if (long_alone)
		dprintf(2, "%s, call %llu%s, %s\n", c->name, (unsigned long long)fault.left,
			fault.on ? " and all behind it" : "", strerror(fault.error));
	status = in_process(c->args, &hooks);
	if (status < 0) {
		dprintf(2, "%s crashed or hung\n", c->name);
		return LONG_FAULT;
	}
	if (!store_sound())
		return LONG_FAULT;
	if (!fault.seen->reached)
		return status ? LONG_FAULT : NOT_REACHED;
	return judge(c, !status);
}

int main(int argc, char **argv)
{
	const struct long_test t = { .name = "calls", .sample = 600, .all = CASES, .together = 1,
				     .seconds = 60, .prepare = make, .run = run_case,
				     .ends = { "without a failure", "succeeded", "left as it was",
					       "done all the same", "partly done" } };

	return long_main(argc, argv, &t);
}
