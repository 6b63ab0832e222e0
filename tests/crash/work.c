// SPDX-License-Identifier: Apache-2.0
/* work.c - workers of the crash and stress tests; see work.h. */
#include "tests/crash/work.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/repair.h"

#define POOL_CHUNKS 48
#define POOL_KERNELS 16
#define PARTS_MAX 12
#define BYTES_MAX 300000

const char *const work_op_names[] = {
#define X(NAME, text) [WORK_##NAME] = text,
	WORK_OPS(X)
#undef X
};

uint64_t work_random(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15u;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return (z ^ z >> 31) | 1;
}

void work_name(char text[32], uint32_t worker, uint32_t name)
{
	snprintf(text, 32, "w%u/%u", worker, name);
}

/* --- notes --- */

void work_intend(struct worker *w, uint32_t name, enum work_intent intent,
		 const struct fdry_oid *wanted)
{
	struct work_name *n = &w->all[w->nr].name[name];

	if (wanted)
		n->wanted = *wanted;
	atomic_store(&n->intent, intent);
	if (w->noted)
		w->noted(w, name);
}

void work_reported(struct worker *w, uint32_t name, bool there, const struct fdry_oid *oid)
{
	struct work_name *n = &w->all[w->nr].name[name];

	n->there = there;
	n->pinned &= there;
	if (there)
		n->reported = *oid;
	atomic_store(&n->intent, INTENT_NONE);
	if (w->noted)
		w->noted(w, name);
}

void work_refused(struct worker *w, uint32_t name)
{
	atomic_store(&w->all[w->nr].name[name].intent, INTENT_NONE);
	if (w->noted)
		w->noted(w, name);
}

/* --- images --- */

struct part {
	enum fdry_object_kind kind;
	uint64_t seed;
	size_t len;
	struct fdry_oid oid;
};

struct plan {
	struct part part[PARTS_MAX];
	size_t count;
	char text[64]; /* the manifest's bytes */
	struct fdry_oid oid;
};

static size_t part_len(uint64_t seed)
{
	uint64_t x = seed * 2654435761u, r = work_random(&x);

	if (r % 100 < 50)
		return 200 + r / 100 % 4000;
	return r % 100 < 92 ? 5000 + r / 100 % 50000 : 100000 + r / 100 % 200000;
}

/* Noise, with repetitions in kernels, so that they are packed. */
static void part_fill(const struct part *part, uint8_t *to)
{
	uint64_t x = part->seed, v = 0;
	size_t i;

	for (i = 0; i < part->len; i++) {
		if (i % 8 == 0)
			v = part->kind == FDRY_OBJECT_CHUNK || i % 32 == 0 ? work_random(&x) : 7;
		to[i] = (uint8_t)(v >> i % 8 * 8);
	}
}

static void plan_add(struct plan *p, enum fdry_object_kind kind, uint64_t seed)
{
	size_t i;

	for (i = 0; i < p->count; i++)
		if (p->part[i].seed == seed)
			return;
	p->part[p->count++] = (struct part){ .kind = kind, .seed = seed, .len = part_len(seed) };
}

static int hash_part(struct part *part, uint8_t *buf)
{
	part_fill(part, buf);
	return fdry_oid_of(buf, part->len, &part->oid);
}

/* Kernels first: a graph links to them. */
static int plan_make(uint64_t seed, uint8_t *buf, struct plan *p)
{
	uint64_t x = seed, i, n;
	int err = 0;

	memset(p, 0, sizeof(*p));
	for (i = 0, n = 1 + work_random(&x) / 2 % 3; i < n; i++)
		plan_add(p, FDRY_OBJECT_KERNEL, 1000 + work_random(&x) / 2 % POOL_KERNELS);
	for (i = 0, n = 1 + work_random(&x) / 2 % 5; i < n; i++)
		plan_add(p, FDRY_OBJECT_CHUNK, 2000 + work_random(&x) / 2 % POOL_CHUNKS);
	plan_add(p, FDRY_OBJECT_CHUNK, seed | 1ull << 40);
	plan_add(p, FDRY_OBJECT_GRAPH, seed | 1ull << 41);
	for (i = 0; i < p->count && !err; i++)
		err = hash_part(&p->part[i], buf);
	snprintf(p->text, sizeof(p->text), "image %llu", (unsigned long long)seed);
	return err ? err : fdry_oid_of(p->text, strlen(p->text), &p->oid);
}

static size_t links_of(const struct plan *p, enum fdry_object_kind kind,
		       struct fdry_oid links[PARTS_MAX])
{
	size_t i, n = 0;

	for (i = 0; i < p->count; i++)
		if (kind == FDRY_OBJECT_MANIFEST || p->part[i].kind == kind)
			links[n++] = p->part[i].oid;
	return n;
}

static int put_part(struct fdry_writer *writer, const struct plan *p, size_t i, uint8_t *buf)
{
	const struct part *part = &p->part[i];
	struct fdry_oid links[PARTS_MAX], oid;
	size_t n = part->kind == FDRY_OBJECT_GRAPH ? links_of(p, FDRY_OBJECT_KERNEL, links) : 0;

	part_fill(part, buf);
	return fdry_writer_add_object(writer, part->kind, buf, part->len, links, n, &oid);
}

/* Putting an object twice before it is written ends a transaction: some seals need several. */
static int put_plan(struct worker *w, const struct plan *p, uint8_t *buf, const char *ref)
{
	uint64_t twice = work_random(&w->random) / 2 % 16;
	struct fdry_oid links[PARTS_MAX], oid;
	struct fdry_writer *writer;
	size_t i, n;
	int err = fdry_writer_begin(w->s, &writer);

	if (err)
		return err;
	for (i = 0; i < p->count && !err; i++) {
		err = put_part(writer, p, i, buf);
		if (!err && i == twice)
			err = put_part(writer, p, i, buf);
	}
	if (err) {
		fdry_writer_abort(writer);
		return err;
	}
	n = links_of(p, FDRY_OBJECT_MANIFEST, links);
	return fdry_writer_commit(writer, p->text, strlen(p->text), links, n, ref, &oid, NULL);
}

/* --- loading --- */

struct loading {
	struct fdry_reader *g;
	uint64_t objects;
};

/* As content is loaded: in place, and hashed once a boot. */
static int load_mapped(struct fdry_reader *g, const struct fdry_oid *oid)
{
	struct fdry_span span;
	int err = fdry_reader_map(g, oid, &span);

	return err ? err : fdry_reader_verify(g, oid, span, false, NULL);
}

static int load_object(void *arg, const struct fdry_object_info *info)
{
	struct loading *l = arg;
	struct fdry_buf b = { 0 };
	struct fdry_oid oid;
	int err = info->kind == FDRY_OBJECT_CHUNK ? load_mapped(l->g, &info->oid) : 0;

	err = err ?: fdry_reader_copy(l->g, &info->oid, &b) ?: fdry_oid_of(b.data, b.len, &oid);
	if (!err && !fdry_oid_eq(&oid, &info->oid))
		err = fdry_fail(FDRY_E_BUG, "an object has other bytes than its id says");
	fdry_buf_release(&b);
	l->objects++;
	return err;
}

/* Load all objects of @name, and return its id and their number. */
static int load(struct fdry_store *s, const char *name, uint64_t *objects, struct fdry_oid *ret)
{
	struct loading l = { 0 };
	int err = fdry_reader_begin(s, &l.g);

	if (err)
		return err;
	err = fdry_reader_resolve(l.g, name, ret) ?: fdry_store_reach(s, ret, load_object, &l);
	fdry_reader_end(l.g);
	*objects += l.objects;
	return err;
}

/* --- operations --- */

/* Print the message now, because the next call clears it. */
static int fault(struct worker *w, const char *what, int err)
{
	fprintf(stderr, "worker %u: %s: %s: %s\n", w->nr, what, fdry_error_name(err),
		fdry_last_error());
	return err;
}

static int seal_one(struct worker *w, uint32_t name)
{
	uint8_t *buf = malloc(BYTES_MAX);
	struct plan p;
	char ref[32];
	int err =
		buf ? plan_make(work_random(&w->random) / 2 % (1u << 20), buf, &p) : fdry_nomem();

	work_name(ref, w->nr, name);
	if (!err) {
		work_intend(w, name, INTENT_SET, &p.oid);
		err = put_plan(w, &p, buf, ref);
		if (err)
			work_refused(w, name);
		else
			work_reported(w, name, true, &p.oid);
	}
	free(buf);
	return err;
}

static uint32_t names_of(const struct worker *w)
{
	return WORK_NAMES - w->real;
}

static uint32_t name_any(struct worker *w)
{
	return (uint32_t)(work_random(&w->random) / 2 % names_of(w));
}

static int do_seal(struct worker *w)
{
	return seal_one(w, name_any(w));
}

/* One of this worker's names that is there. */
static struct work_name *name_there(struct worker *w, uint32_t *ret)
{
	uint32_t i, first = name_any(w);
	struct work_name *names = w->all[w->nr].name;

	for (i = 0; i < names_of(w); i++) {
		*ret = (first + i) % names_of(w);
		if (names[*ret].there)
			return &names[*ret];
	}
	return NULL;
}

static int do_tag(struct worker *w)
{
	uint32_t from, to = name_any(w);
	struct work_name *n = name_there(w, &from);
	struct fdry_oid oid;
	bool may_go;
	char ref[32];
	int err;

	if (!n)
		return 0;
	oid = n->reported;
	may_go = work_may_go(n);
	work_name(ref, w->nr, to);
	work_intend(w, to, INTENT_SET, &oid);
	err = fdry_ref_set(w->s, ref, &oid, NULL);
	if (err)
		work_refused(w, to);
	else
		work_reported(w, to, true, &oid);
	return err == -FDRY_E_NOENT && may_go ? 0 : err;
}

static int do_remove(struct worker *w)
{
	char ref[32];
	uint32_t nr;
	int err;

	if (!name_there(w, &nr))
		return 0;
	work_name(ref, w->nr, nr);
	work_intend(w, nr, INTENT_REMOVE, NULL);
	err = fdry_store_remove(w->s, ref);
	if (err == -FDRY_E_NOENT && work_may_go(&w->all[w->nr].name[nr]))
		err = 0;
	if (err)
		work_refused(w, nr);
	else
		work_reported(w, nr, false, NULL);
	return err;
}

/* Pin the first half of this worker's names now and then, and unpin them again. */
static int do_pin(struct worker *w)
{
	struct work_name *n;
	bool pinned;
	char ref[32];
	uint32_t nr;
	int err;

	n = name_there(w, &nr);
	if (!n)
		return 0;
	pinned = nr < WORK_NAMES / 2 && !n->pinned;
	work_name(ref, w->nr, nr);
	atomic_store(&n->pinning, 1);
	work_intend(w, nr, INTENT_NONE, NULL);
	err = pinned ? fdry_store_pin(w->s, ref) : fdry_store_unpin(w->s, ref);
	if (!err)
		n->pinned = pinned;
	if (err == -FDRY_E_NOENT && !n->pinned) { /* it was evicted */
		n->there = false;
		err = 0;
	}
	atomic_store(&n->pinning, 0);
	work_refused(w, nr);
	return err;
}

/* Evict to three quarters of the size in use. */
static int do_evict(struct worker *w)
{
	struct fdry_evict_opts opts = { .sz = sizeof(opts) };
	uint64_t used = 0;
	int err = fdry_store_limit(w->s, NULL, &used);

	opts.flags = work_random(&w->random) / 2 % 4 == 0 ? FDRY_EVICT_DRY_RUN : 0;
	opts.bytes = used / 4 * 3 + 1;
	return err ? err : fdry_store_evict(w->s, &opts, NULL);
}

/* Set a limit above the size of an image, or none. */
static int do_limit(struct worker *w)
{
	uint64_t mib = work_random(&w->random) / 2 % 8;

	return fdry_store_set_limit(w->s, mib < 4 ? 0 : (mib + 4) << 20);
}

/* Repair must find no damage, whatever other workers do. */
static int do_repair(struct worker *w)
{
	struct fdry_repair_opts opts = { .sz = sizeof(opts), .threads = 1 };
	struct fdry_repair_report r = { .sz = sizeof(r) };
	int err = w->forks ? fdry_store_repair(w->path, NULL, 0, &opts, &r) : 0;

	if (err || !w->forks)
		return err;
	if (r.damaged || r.missing || r.back || r.quarantined || r.lost ||
	    r.broken)
		return fdry_fail(FDRY_E_BUG,
				 "a repair found something: %llu damaged, %llu missing, %llu lost, "
				 "%llu refs broken",
				 (unsigned long long)r.damaged,
				 (unsigned long long)r.missing, (unsigned long long)r.lost,
				 (unsigned long long)r.broken);
	return 0;
}

static int do_gc(struct worker *w)
{
	struct fdry_gc_opts opts = { .sz = sizeof(opts) };

	opts.flags = work_random(&w->random) / 2 % 8 == 0 ? FDRY_GC_DRY_RUN : 0;
	return fdry_store_gc(w->s, &opts, NULL);
}

/* Load this worker's own name, which must exist, or any other. */
static int do_load(struct worker *w)
{
	uint32_t nr, whose = w->nr;
	struct work_name *n = name_there(w, &nr);
	struct work_counts *c = &w->all[w->nr].counts;
	struct fdry_oid oid;
	char ref[32];
	int err;

	if (work_random(&w->random) / 2 % 2 || !n) {
		whose = (uint32_t)(work_random(&w->random) / 2 % w->count);
		nr = (uint32_t)(work_random(&w->random) / 2 % WORK_NAMES);
		n = whose == w->nr && w->all[whose].name[nr].there ? &w->all[whose].name[nr] : NULL;
	}
	work_name(ref, whose, nr);
	err = load(w->s, ref, &c->objects, &oid);
	if (!err && n && !fdry_oid_eq(&oid, &n->reported))
		err = fdry_fail(FDRY_E_BUG, "%s is another image than was reported", ref);
	if (err == -FDRY_E_NOENT && n &&
	    !(work_may_go(n) && fdry_ref_get(w->s, ref, &oid) == -FDRY_E_NOENT))
		err = fdry_fail(FDRY_E_BUG, "lost: %s (%s)", ref, fdry_last_error());
	return err;
}

static int do_claim(struct worker *w)
{
	char key = (char)('a' + work_random(&w->random) / 2 % 4);
	struct fdry_claim *claim;
	bool waited;
	int err = fdry_claim_begin(w->s, &key, 1, &(struct fdry_wait){ .ms = 10 }, &waited, &claim);

	if (!err)
		fdry_claim_end(claim);
	return err;
}

static int do_open(struct worker *w)
{
	if (w->keep)
		return 0;
	fdry_store_close(w->s);
	w->s = NULL;
	return fdry_store_open(w->path, FDRY_STORE_CREATE, &w->s);
}

static const struct {
	enum work_op op;
	unsigned int share; /* of 100 */
	int (*run)(struct worker *w);
} steps[] = {
	{ WORK_OPEN, 4, do_open },	{ WORK_CLAIM, 3, do_claim }, { WORK_GC, 9, do_gc },
	{ WORK_REMOVE, 10, do_remove }, { WORK_TAG, 11, do_tag },    { WORK_PIN, 8, do_pin },
	{ WORK_EVICT, 4, do_evict },	{ WORK_LIMIT, 2, do_limit }, { WORK_REPAIR, 1, do_repair },
	{ WORK_LOAD, 18, do_load },	{ WORK_SEAL, 30, do_seal },
};

/* Is @err a result that other workers can cause? */
static bool is_fine(const struct worker *w, enum work_op op, int err)
{
	if (op == WORK_GC && err == -FDRY_E_LOCKED)
		return w->locked_fine;
	if (op == WORK_CLAIM && err == -FDRY_E_LOCKED)
		return true;
	return op == WORK_LOAD && err == -FDRY_E_NOENT;
}

int work_step(struct worker *w)
{
	struct work_notes *me = &w->all[w->nr];
	unsigned int at = (unsigned int)(work_random(&w->random) / 2 % 100);
	size_t i = 0;
	int err = 0;

	while (at >= steps[i].share)
		at -= steps[i++].share;
	if (!w->s) {
		atomic_store(&me->op, WORK_OPEN);
		err = fdry_store_open(w->path, FDRY_STORE_CREATE, &w->s);
		i = err ? 0 : i;
	}
	if (!err) {
		atomic_store(&me->op, steps[i].op);
		err = steps[i].run(w);
	}
	atomic_store(&me->op, WORK_IDLE);
	if (!err)
		me->counts.done[steps[i].op]++;
	else if (is_fine(w, steps[i].op, err))
		me->counts.refused[steps[i].op]++;
	else
		return fault(w, work_op_names[steps[i].op], err);
	return 0;
}
