// SPDX-License-Identifier: Apache-2.0
/*
 * Every way in which sessions and collections can interleave. Actors (a seal, a load, a tag, a
 * removal, a collection) are coroutines that run the store's own code. They can switch at each
 * transaction and each use of a lease (store/step.h). A run follows a list of choices. The next run
 * changes the last choice that has another option. So all orders are tried with a limited number of
 * preemptions, which interrupt an actor that could continue. STEPS_MORE=1 in the environment allows
 * one more; make check-steps sets it. After each run, every image that was reported to an actor as
 * stored must be whole, and every object must be reachable. A last collection must leave exactly
 * the objects that the refs reach.
 */
#include "store/lease.c"
#include "store/writer.c"

#include <fcntl.h>
#include <signal.h>

#include "tests/lib/steps.h"
#include "tests/lib/store.h"

/* These tests run in one thread. Coroutines that died stay suspended. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static struct fdry_store *s;

/* --- the objects: image "m" -> graph -> two chunks, put without a ref --- */

#define C1 "chunk one"
#define C2 "chunk two"
#define GRAPH "graph"
#define MANIFEST "manifest"

static struct fdry_oid id(const char *text)
{
	return oid_of(text, strlen(text));
}

static int put_text(struct fdry_writer *p, enum fdry_object_kind kind, const char *text,
		    const struct fdry_oid *links, size_t n)
{
	struct fdry_oid oid;

	return fdry_writer_add_object(p, kind, text, strlen(text), links, n, &oid);
}

static int put_parts(struct fdry_writer *p)
{
	struct fdry_oid chunks[2] = { id(C1), id(C2) };

	return put_text(p, FDRY_OBJECT_CHUNK, C1, NULL, 0) ?:
	       put_text(p, FDRY_OBJECT_CHUNK, C2, NULL, 0) ?:
	       put_text(p, FDRY_OBJECT_GRAPH, GRAPH, chunks, 2);
}

static int put_image(struct fdry_writer *p, const char *manifest, const char *ref)
{
	struct fdry_oid graph = id(GRAPH), oid;

	return fdry_writer_commit(p, manifest, strlen(manifest), &graph, 1, ref, &oid, NULL);
}

/* Begin an order: no actors, and a store with an image, which has the name @ref, if any. */
static void prefill(const char *ref)
{
	struct fdry_writer *p;

	nactors = 0;
	ok(fdry_writer_begin(s, &p));
	ok(put_parts(p));
	ok(put_image(p, MANIFEST, ref));
}

/* --- actors --- */

struct seal {
	struct fdry_writer *p;
	const char *ref;
	bool twice; /* a batch is written halfway */
	bool abort; /* no manifest at the end */
	int err;
};

static void sealer(void *arg)
{
	struct seal *seal = arg;

	seal->err = fdry_writer_begin(s, &seal->p);
	if (seal->err)
		return;
	seal->err = put_parts(seal->p);
	if (!seal->err && seal->twice)
		seal->err = put_text(seal->p, FDRY_OBJECT_KERNEL, "kernel", NULL, 0);
	if (!seal->err && seal->twice)
		seal->err = put_text(seal->p, FDRY_OBJECT_KERNEL, "kernel", NULL, 0);
	if (!seal->err && seal->abort) {
		struct fdry_oid chunk = id(C1);

		seal->err = put_text(seal->p, FDRY_OBJECT_GRAPH, "parent", &chunk, 1);
		if (!seal->err)
			seal->err = put_text(seal->p, FDRY_OBJECT_GRAPH, "parent", &chunk, 1);
	}
	if (seal->err || seal->abort)
		fdry_writer_abort(seal->p);
	else
		seal->err = put_image(seal->p, MANIFEST, seal->ref);
	seal->p = NULL;
}

/* Put the image's manifest alone: the objects that it links to count as present. */
static void truster(void *arg)
{
	struct seal *seal = arg;

	seal->err = fdry_writer_begin(s, &seal->p);
	if (seal->err)
		return;
	seal->err = put_text(seal->p, FDRY_OBJECT_GRAPH, "parent", NULL, 0);
	if (!seal->err) {
		struct fdry_oid links[1] = { id("parent") }, oid;

		seal->err =
			fdry_writer_commit(seal->p, "trusting", 8, links, 1, seal->ref, &oid, NULL);
	} else {
		fdry_writer_abort(seal->p);
	}
	seal->p = NULL;
}

/* Put an object that links to objects of others. */
static void linker(void *arg)
{
	struct fdry_oid graph = id(GRAPH), link, oid;
	struct seal *seal = arg;
	int err;

	err = fdry_writer_begin(s, &seal->p);
	if (err) {
		seal->err = err;
		return;
	}
	err = put_text(seal->p, FDRY_OBJECT_GRAPH, "linker", &graph, 1);
	if (err) { /* it was removed before */
		seal->err = err == -FDRY_E_NOENT ? 0 : err;
		seal->abort = true;
		fdry_writer_abort(seal->p);
	} else {
		link = id("linker");
		seal->err =
			fdry_writer_commit(seal->p, "linking", 7, &link, 1, seal->ref, &oid, NULL);
	}
	seal->p = NULL;
}

struct load {
	const char *name; /* NULL: resolve no ref, and read everything by id */
	bool found;
	int err;
};

static int read_it(struct fdry_reader *g, const char *text)
{
	struct fdry_oid oid = id(text);
	struct fdry_buf b = { 0 };
	int err = fdry_reader_copy(g, &oid, &b);

	fdry_buf_release(&b);
	return err;
}

/* Mapped bytes stay unchanged until the session ends. */
static int read_all(struct fdry_reader *g, struct fdry_reader *h)
{
	struct fdry_oid chunks[2] = { id(C1), id(C2) };
	struct fdry_span spans[2];
	int i, err = read_it(h, GRAPH);

	for (i = 0; i < 2 && !err; i++)
		err = fdry_reader_map(i ? g : h, &chunks[i], &spans[i]);
	for (i = 0; i < 2 && !err; i++)
		err = read_it(h, i ? C1 : C2);
	for (i = 0; i < 2 && !err; i++)
		err = fdry_reader_verify(i ? g : h, &chunks[i], spans[i], true, NULL);
	return err;
}

/* One session resolves the ref; another one, which begins later, reads the objects. */
static void loader(void *arg)
{
	struct fdry_reader *g = NULL, *h = NULL;
	struct load *load = arg;
	struct fdry_oid oid;

	load->err = fdry_reader_begin(s, &g);
	if (!load->err)
		load->err = load->name ? fdry_reader_resolve(g, load->name, &oid)
				       : read_it(g, MANIFEST);
	load->found = !load->err;
	if (load->err == -FDRY_E_NOENT)
		load->err = 0;
	if (load->found)
		load->err = fdry_reader_begin(s, &h);
	if (load->found && !load->err)
		load->err = read_it(h, MANIFEST);
	if (load->found && !load->err)
		load->err = read_all(g, h);
	fdry_reader_end(h);
	fdry_reader_end(g);
}

static void tagger(void *arg)
{
	struct fdry_oid oid = id(MANIFEST);

	*(int *)arg = fdry_ref_set(s, "tag", &oid, NULL);
}

static void remover(void *arg)
{
	*(int *)arg = fdry_store_remove(s, "r");
}

static void collector(void *arg)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };

	*(int *)arg = fdry_store_gc(s, NULL, &r);
}

/* --- conditions that must hold --- */

static int count_one(void *arg, const struct fdry_object_info *info)
{
	(void)info;
	++*(unsigned int *)arg;
	return 0;
}

static int links_lead(void *arg, const struct fdry_object_info *info)
{
	struct fdry_object_info other;
	struct fdry_oid *links = NULL;
	size_t n = 0, i;
	int err = fdry_store_links(s, &info->oid, &links, &n);

	(void)arg;
	for (i = 0; i < n && !err; i++)
		err = fdry_store_info(s, &links[i], &other);
	free(links);
	return err;
}

struct reached {
	struct fdry_idset ids;
};

static int reach_one(void *arg, const struct fdry_object_info *info)
{
	return fdry_idset_add(&((struct reached *)arg)->ids, &info->oid, NULL);
}

static int reach_ref(void *arg, const struct fdry_ref *ref)
{
	return fdry_store_reach(s, &ref->oid, reach_one, arg);
}

#define must(call) \
	do { \
		int ret_ = (call); \
		ck_assert_msg(!ret_, "%s: %s: %s, by the order %s", #call, fdry_error_name(ret_), \
			      fdry_last_error(), trace); \
	} while (0)
#define must_be(what) ck_assert_msg(what, "not so: %s, by the order %s", #what, trace)

static int drop_ref(void *arg, const struct fdry_ref *ref)
{
	(void)arg;
	return fdry_store_remove(s, ref->name);
}

static unsigned long runs;

/* End an order: nothing is lost, and after a collection no garbage is left. Empty the store. */
static void settle(void)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct reached reached = { { 0 } };
	unsigned int n = 0;

	must(fdry_store_each(s, links_lead, NULL));
	must(fdry_ref_each(s, reach_ref, &reached));
	must(fdry_store_gc(s, NULL, &r));
	must(fdry_store_each(s, count_one, &n));
	must_be(n == reached.ids.count);
	must_be(!lease_files());
	runs++;
	must(fdry_ref_each(s, drop_ref, NULL));
	must(fdry_store_gc(s, NULL, &r));
	n = 0;
	must(fdry_store_each(s, count_one, &n));
	must_be(!n);
	fdry_idset_release(&reached.ids);
}

static bool has_ref(const char *name)
{
	struct fdry_oid oid;

	return !fdry_ref_get(s, name, &oid);
}

/* --- runs --- */

static void explored(const char *what)
{
	fprintf(stderr, "%s: %lu orders\n", what, runs);
	runs = 0;
}

static void setup(void)
{
	dir_setup_in("/dev/shm");
	s = store_make();
}

static void teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}

/* A seal uses objects without a ref, while a collection would remove them. */
static void seal_and_collect(bool twice)
{
	struct seal seal;
	int gc;

	explore_begin(1);
	do {
		seal = (struct seal){ .ref = "a", .twice = twice };
		prefill(NULL);
		actor_add(sealer, &seal);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(seal.err);
		must(gc);
		must_be(has_ref("a"));
		settle();
	} while (choices_next());
	explored(twice ? "seal in two batches, collect" : "seal, collect");
}

START_TEST(seal_beside_a_collection)
{
	seal_and_collect(false);
	seal_and_collect(true);
}
END_TEST

/* The objects that the seal uses are removed meanwhile. */
START_TEST(seal_remove_collect)
{
	struct seal seal;
	int gc, rm;

	explore_begin(1);
	do {
		seal = (struct seal){ .ref = "a" };
		prefill("r");
		actor_add(sealer, &seal);
		actor_add(remover, &rm);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(seal.err);
		must(gc);
		must(rm);
		must_be(has_ref("a") && !has_ref("r"));
		settle();
	} while (choices_next());
	explored("seal, remove, collect");
}
END_TEST

static void load_and_collect(const char *name, const char *ref, unsigned int preempts,
			     const char *what)
{
	struct load load;
	int gc, rm;

	explore_begin(preempts);
	do {
		load = (struct load){ .name = name };
		rm = 0;
		prefill(ref);
		actor_add(loader, &load);
		if (ref)
			actor_add(remover, &rm);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(load.err);
		must(gc);
		must(rm);
		settle();
	} while (choices_next());
	explored(what);
}

START_TEST(load_remove_collect)
{
	struct fdry_oid image = id(MANIFEST);
	char hex[FDRY_OID_HEX_SIZE];

	load_and_collect("r", "r", 1, "load, remove, collect");
	load_and_collect(fdry_oid_hex(&image, hex), "r", 1, "load by id, remove, collect");
	load_and_collect(hex, NULL, 2, "load by id without a name, collect");
}
END_TEST

/* The answer of a put about its links also stays true. */
START_TEST(link_collect)
{
	struct seal seal;
	int gc;

	explore_begin(1);
	do {
		seal = (struct seal){ .ref = "a" };
		prefill(NULL);
		actor_add(linker, &seal);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(seal.err);
		must(gc);
		must_be(seal.abort || has_ref("a"));
		settle();
	} while (choices_next());
	explored("link, collect");
}
END_TEST

/* A lease may look like a dead process' lease while it is made; and of two collections, one gives
 * up. */
START_TEST(seal_collect_collect)
{
	struct seal seal;
	int gc[2];

	explore_begin(1);
	do {
		seal = (struct seal){ .ref = "a", .twice = true };
		prefill(NULL);
		actor_add(sealer, &seal);
		actor_add(collector, &gc[0]);
		actor_add(collector, &gc[1]);
		go(NULL, 0, NULL);
		must(seal.err);
		must_be(!gc[0] || !gc[1]);
		must_be(gc[0] == -FDRY_E_LOCKED || !gc[0]);
		must_be(gc[1] == -FDRY_E_LOCKED || !gc[1]);
		must_be(has_ref("a"));
		settle();
	} while (choices_next());
	explored("seal, collect, collect");
}
END_TEST

/* Tag an image without a ref, beside a load of another ref. */
START_TEST(tag_seal_collect)
{
	struct seal seal;
	int gc, tag;

	explore_begin(1);
	do {
		seal = (struct seal){ .ref = "a" };
		prefill(NULL);
		actor_add(tagger, &tag);
		actor_add(sealer, &seal);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(seal.err);
		must(gc);
		must_be(tag == -FDRY_E_NOENT || (!tag && has_ref("tag")));
		settle();
	} while (choices_next());
	explored("tag, seal, collect");
}
END_TEST

/* An aborted seal leaves an object whose link is old garbage; another seal trusts that object. */
START_TEST(give_up_trust_collect)
{
	struct seal one, two;
	int gc;

	explore_begin(1);
	do {
		one = (struct seal){ .abort = true };
		two = (struct seal){ .ref = "b" };
		prefill(NULL);
		actor_add(sealer, &one);
		actor_add(truster, &two);
		actor_add(collector, &gc);
		go(NULL, 0, NULL);
		must(one.err);
		must(two.err);
		must(gc);
		must_be(has_ref("b"));
		settle();
	} while (choices_next());
	explored("give up, trust, collect");
}
END_TEST

/* --- dying --- */

static struct seal dying;

static void die_sealing(void)
{
	if (dying.p)
		file_close(dying.p->lease);
}

/* A seal dies at each of its steps, beside a collection and another seal. */
START_TEST(a_seal_dies)
{
	unsigned int at;
	struct seal other;
	bool died = true;
	int gc;

	for (at = 1; died; at++) {
		explore_begin(0);
		do {
			dying = (struct seal){ .ref = "a", .twice = true };
			other = (struct seal){ .ref = "b" };
			prefill(NULL);
			actor_add(sealer, &dying);
			actor_add(sealer, &other);
			actor_add(collector, &gc);
			died = go(&actors[0], at, die_sealing);
			must(other.err);
			must(gc);
			must_be(has_ref("b"));
			settle();
		} while (choices_next());
	}
	explored("a seal dies, seal, collect");
}
END_TEST

/* Close the files that the dead collection had locked. */
static void die_collecting(void)
{
	char name[32], target[400];
	ssize_t n;
	int fd;

	for (fd = 3; fd < 100; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		n = readlink(name, target, sizeof(target) - 1);
		if (n > 0 && fd != s->env->dir.fd && (size_t)n == strlen(path) &&
		    !memcmp(target, path, (size_t)n))
			close(fd);
	}
}

/* A collection dies at each of its steps, beside a seal; then another collection runs. */
START_TEST(a_collection_dies)
{
	unsigned int at;
	struct seal seal;
	bool died = true;
	int gc;

	for (at = 1; died; at++) {
		explore_begin(0);
		do {
			seal = (struct seal){ .ref = "a" };
			gc = 0;
			prefill(NULL);
			actor_add(collector, &gc);
			actor_add(sealer, &seal);
			died = go(&actors[0], at, die_collecting);
			must(seal.err);
			must(gc);
			must_be(has_ref("a"));
			settle();
		} while (choices_next());
	}
	explored("a collection dies, seal");
}
END_TEST

/* --- equal process ids: every view is a turn under the writers' lock --- */

static pid_t hold_reader_place(pid_t who)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = who, .l_len = 1 };
	char file[400], c;
	int pipes[2], fd;
	pid_t pid;

	snprintf(file, sizeof(file), "%s/lock.mdb", path);
	ck_assert(!pipe(pipes));
	pid = fork();
	if (!pid) {
		fd = open(file, O_RDWR);
		if (fd < 0 || fcntl(fd, F_SETLK, &fl) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

START_TEST(load_in_turns)
{
	pid_t other;

	fdry_store_close(s);
	other = hold_reader_place(getpid());
	ok(fdry_store_open(path, 0, &s));
	load_and_collect("r", "r", 1, "load in turns, remove, collect");
	load_and_collect(NULL, NULL, 1, "load in turns and by ids, collect");
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_steps");
	TCase *tc = tcase_create("steps");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, more() ? 3600 : 100);
	tcase_add_test(tc, seal_beside_a_collection);
	tcase_add_test(tc, seal_remove_collect);
	tcase_add_test(tc, load_remove_collect);
	tcase_add_test(tc, link_collect);
	tcase_add_test(tc, seal_collect_collect);
	tcase_add_test(tc, tag_seal_collect);
	tcase_add_test(tc, give_up_trust_collect);
	tcase_add_test(tc, a_seal_dies);
	tcase_add_test(tc, a_collection_dies);
	tcase_add_test(tc, load_in_turns);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
