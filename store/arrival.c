// SPDX-License-Identifier: Apache-2.0
/*
 * arrival.c - objects that one thread fetches into the store while others read them; see store.h.
 *
 * The fetching thread lists the objects in the order in which they come, and then counts those that
 * are committed. A reader that needs an object waits for the count. Manifests are kept in memory:
 * the store gets them at the end, so that it never lists an image without its objects.
 */
#include <stdlib.h>

#include "lib/search.h"
#include "lib/threads.h"
#include "store/internal.h"

struct expected {
	struct fdry_oid oid;
	size_t place; /* in the order of arrival */
};

struct image {
	struct fdry_oid oid, identity;
	struct fdry_buf manifest;
};

struct fdry_arrival {
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t changed;
	bool begun; /* the lists are complete, and do not change any more */
	bool ended;
	struct fdry_saved_err failed;
	size_t there;          /* objects that are committed */
	struct fdry_buf ids;   /* struct expected each, by id */
	struct fdry_buf images; /* struct image each */
};

int fdry_arrival_new(struct fdry_arrival **ret)
{
	struct fdry_arrival *a = calloc(1, sizeof(*a));

	if (!a)
		return fdry_nomem();
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	*ret = a;
	return 0;
}

static size_t image_count(const struct fdry_arrival *a)
{
	return a->images.len / sizeof(struct image);
}

static struct image *image_at(const struct fdry_arrival *a, size_t i)
{
	return (struct image *)a->images.data + i;
}

void fdry_arrival_free(struct fdry_arrival *a)
{
	size_t i;

	if (!a)
		return;
	for (i = 0; i < image_count(a); i++)
		fdry_buf_release(&image_at(a, i)->manifest);
	fdry_buf_release(&a->images);
	fdry_buf_release(&a->ids);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* --- the fetching thread --- */

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct fdry_oid)); /* the first member */
}

int fdry_arrival_add_image(struct fdry_arrival *a, const struct fdry_oid *oid,
			   const struct fdry_oid *identity, struct fdry_span manifest)
{
	struct image m = { .oid = *oid, .identity = *identity };
	int err = fdry_buf_put(&m.manifest, manifest.data, manifest.len) ?:
		  fdry_buf_put(&a->images, &m, sizeof(m));

	if (err)
		fdry_buf_release(&m.manifest);
	return err;
}

int fdry_arrival_add(struct fdry_arrival *a, const struct fdry_oid *oid)
{
	struct expected e = { .oid = *oid, .place = a->ids.len / sizeof(e) };

	return fdry_buf_put(&a->ids, &e, sizeof(e));
}

void fdry_arrival_begin(struct fdry_arrival *a)
{
	size_t n = a->ids.len / sizeof(struct expected);

	if (n)
		qsort(a->ids.data, n, sizeof(struct expected), by_id);
	pthread_mutex_lock(&a->lock);
	a->begun = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void fdry_arrival_reach(struct fdry_arrival *a, size_t count)
{
	pthread_mutex_lock(&a->lock);
	a->there = count;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void fdry_arrival_end(struct fdry_arrival *a, int err)
{
	pthread_mutex_lock(&a->lock);
	fdry_saved_err_set(&a->failed, err);
	a->ended = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

/* --- readers --- */

bool fdry_arrival_has_images(struct fdry_arrival *a)
{
	bool some;

	pthread_mutex_lock(&a->lock);
	while (!a->begun && !a->ended)
		pthread_cond_wait(&a->changed, &a->lock);
	some = a->begun && a->images.len;
	pthread_mutex_unlock(&a->lock);
	return some;
}

/* The lists do not change any more, so they need no lock. */
static const struct expected *expected_find(const struct fdry_arrival *a,
					    const struct fdry_oid *oid)
{
	const struct expected *all = (const void *)a->ids.data;
	size_t n = a->ids.len / sizeof(*all);
	size_t low = fdry_lower_bound(i, n, memcmp(&all[i].oid, oid, sizeof(*oid)) < 0);

	return low < n && fdry_oid_eq(&all[low].oid, oid) ? &all[low] : NULL;
}

int fdry_arrival_wait(struct fdry_arrival *a, const struct fdry_oid *oid)
{
	const struct expected *e = expected_find(a, oid);
	int err = 0;

	if (!e)
		return 0;
	pthread_mutex_lock(&a->lock);
	while (a->there <= e->place && !a->ended)
		pthread_cond_wait(&a->changed, &a->lock);
	if (a->there <= e->place)
		err = fdry_saved_err_restore(&a->failed);
	pthread_mutex_unlock(&a->lock);
	return err;
}

bool fdry_arrival_manifest(const struct fdry_arrival *a, const struct fdry_oid *oid,
			   struct fdry_span *ret)
{
	size_t i;

	for (i = 0; i < image_count(a); i++) {
		if (!fdry_oid_eq(&image_at(a, i)->oid, oid))
			continue;
		*ret = (struct fdry_span){ image_at(a, i)->manifest.data,
					   image_at(a, i)->manifest.len };
		return true;
	}
	return false;
}

/* The last one is named last, so it is the newest. */
int fdry_arrival_refs(const struct fdry_arrival *a, const char *name, struct fdry_ref **ret,
		      size_t *count)
{
	size_t i, n = image_count(a);
	struct fdry_ref *refs = calloc(n + 1, sizeof(*refs));

	if (!refs)
		return fdry_nomem();
	for (i = 0; i < n; i++) {
		snprintf(refs[i].name, sizeof(refs[i].name), "%s", name);
		refs[i].oid = image_at(a, n - 1 - i)->oid;
		refs[i].identity = image_at(a, n - 1 - i)->identity;
	}
	*ret = refs;
	*count = n;
	return 0;
}

/* --- handles --- */

void fdry_store_expect(struct fdry_store *s, struct fdry_arrival *a)
{
	s->arrival = a;
}
