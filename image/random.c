// SPDX-License-Identifier: Apache-2.0
/*
 * random.c - random numbers of a loaded image; see image/random.h.
 *
 * Before each launch, the seed and offset are written to the graph's slots by memsets of 32 bits. A
 * memset runs in the order of the stream, and the driver copies its value during the call. So no
 * memory must be kept for it, however many launches are in flight. A stream first waits for the
 * last launch that drew, which may run on another stream: the driver orders launches of one graph,
 * but would not keep these memsets from changing slots that a launch still reads.
 */
#include "image/random.h"

#include <stdlib.h>
#include <string.h>

#include "image/exec.h"
#include "lib/opts.h"

struct fdry_random {
	pthread_mutex_t lock;
	uint32_t *first; /* for each graph, the index of its first draw in the manifest; one more at
			    the end */
	CUevent ended;   /* recorded after the last launch that drew; NULL: not made yet */
	bool launched;   /* @ended was recorded */
	bool ordered;    /* the stream of the current launch waits for @ended */
	struct fdry_rng_state states[];
};

int fdry_random_new(struct fdry_image *img)
{
	const struct fdry_manifest *m = &img->m;
	struct fdry_random *r;
	uint32_t i, d = 0;

	if (!m->n_generators)
		return 0;
	r = calloc(1, sizeof(*r) + m->n_generators * sizeof(r->states[0]));
	if (!r)
		return fdry_nomem();
	r->first = calloc((size_t)m->n_graphs + 1, sizeof(*r->first));
	if (!r->first) {
		free(r);
		return fdry_nomem();
	}
	for (i = 0; i <= m->n_graphs; i++) {
		r->first[i] = d;
		while (d < m->n_rng_uses && m->rng_uses[d].graph == i)
			d++;
	}
	for (i = 0; i < m->n_generators; i++)
		r->states[i].seed = FDRY_RNG_SEED;
	pthread_mutex_init(&r->lock, NULL);
	img->random = r;
	return 0;
}

void fdry_random_event_free(struct fdry_image *img)
{
	struct fdry_random *r = img->random;

	if (r && r->ended)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, r->ended);
	if (r)
		r->ended = NULL;
}

void fdry_random_free(struct fdry_image *img)
{
	if (!img->random)
		return;
	pthread_mutex_destroy(&img->random->lock);
	free(img->random->first);
	free(img->random);
	img->random = NULL;
}

/* --- launches --- */

static int word_write(struct fdry_image *img, uint64_t addr, uint32_t value, CUstream stream)
{
	return fdry_call(img->drv, cuMemsetD32Async, addr, value, 1, stream);
}

static int slot_write(struct fdry_image *img, uint64_t addr, uint64_t value, CUstream stream)
{
	int err = word_write(img, addr, (uint32_t)value, stream);

	return err ? err : word_write(img, addr + 4, (uint32_t)(value >> 32), stream);
}

static bool uses_rng(const struct fdry_random *r, uint32_t graph)
{
	return r && r->first[graph] != r->first[graph + 1];
}

/* Let @stream wait for the last launch that drew, even if that has the same stream handle. A handle
 * may be reused after its stream was destroyed, while the work of the old stream still runs. */
static int order_begin(struct fdry_image *img, CUstream stream)
{
	struct fdry_random *r = img->random;
	int err = 0;

	if (!r->ended)
		err = fdry_call(img->drv, cuEventCreate, &r->ended, CU_EVENT_DISABLE_TIMING);
	else if (r->launched)
		err = fdry_call(img->drv, cuStreamWaitEvent, stream, r->ended, 0);
	r->ordered = !err;
	return err;
}

int fdry_random_write(struct fdry_image *img, const struct fdry_launch *l)
{
	const struct fdry_random *r = img->random;
	const struct fdry_rng_state *states, *s;
	const struct fdry_mf_rng_use *d;
	uint32_t i;
	int err;

	if (!uses_rng(r, l->graph))
		return 0;
	err = order_begin(img, l->stream);
	if (err)
		return err;
	states = l->states ? l->states : r->states;
	for (i = r->first[l->graph]; i < r->first[l->graph + 1]; i++) {
		d = &img->m.rng_uses[i];
		s = &states[d->generator];
		err = slot_write(img, d->seed, s->seed, l->stream);
		if (err)
			return err;
		err = slot_write(img, d->offset, s->offset, l->stream);
		if (err)
			return err;
	}
	return 0;
}

void fdry_random_begin(struct fdry_image *img, const struct fdry_launch *l)
{
	if (uses_rng(img->random, l->graph))
		pthread_mutex_lock(&img->random->lock);
}

/* The slots may have been written even if the launch failed, so the next launch that draws must
 * always wait for this one. */
static void order_end(struct fdry_image *img, CUstream stream)
{
	struct fdry_random *r = img->random;

	if (!r->ordered)
		return;
	r->ordered = false;
	r->launched = !fdry_call_raw(img->drv, cuEventRecord, r->ended, stream);
	if (!r->launched)
		(void)fdry_call_raw(img->drv, cuStreamSynchronize, stream);
}

void fdry_random_end(struct fdry_image *img, const struct fdry_launch *l, int err)
{
	struct fdry_random *r = img->random;
	uint32_t i;

	if (!uses_rng(r, l->graph))
		return;
	order_end(img, l->stream);
	if (err || l->states)
		goto out_unlock;
	for (i = r->first[l->graph]; i < r->first[l->graph + 1]; i++)
		r->states[img->m.rng_uses[i].generator].offset += img->m.rng_uses[i].increment;
out_unlock:
	pthread_mutex_unlock(&r->lock);
}

/* --- states --- */

static const char *generator_name(const struct fdry_image *img, uint32_t i)
{
	return fdry_manifest_str(&img->m, img->m.generators[i].name);
}

static int generator_find(const struct fdry_image *img, const char *name, uint32_t *ret)
{
	uint32_t i;
	int err = fdry_image_usable(img) ?: fdry_need(name);

	if (err)
		return err;
	for (i = 0; i < img->m.n_generators; i++)
		if (!strcmp(generator_name(img, i), name)) {
			*ret = i;
			return 0;
		}
	return fdry_fail(
		FDRY_E_NOKEY,
		"the image has no generator '%.100s'; fdry_image_rng() names its %u", name,
		img->m.n_generators);
}

size_t fdry_image_rng_count(const struct fdry_image *img)
{
	return img ? img->m.n_generators : 0;
}

int fdry_image_rng(const struct fdry_image *img, size_t i, const char **name)
{
	int err = fdry_image_usable(img) ?: fdry_need(name);

	if (err)
		return err;
	if (i >= img->m.n_generators)
		return fdry_fail(FDRY_E_NOKEY,
				 "the image has %u generators, but number %zu was asked for",
				 img->m.n_generators, i);
	*name = generator_name(img, (uint32_t)i);
	return 0;
}

int fdry_image_rng_use(const struct fdry_image *img, uint64_t key, size_t i,
		       struct fdry_rng_use *ret)
{
	const struct fdry_mf_rng_use *d;
	uint32_t graph = 0, n = 0, first = 0;
	int err = fdry_image_usable(img) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_exec_index(img, key, &graph);
	if (err)
		return err;
	if (img->random) {
		first = img->random->first[graph];
		n = img->random->first[graph + 1] - first;
	}
	if (i >= n)
		return fdry_fail(
			FDRY_E_NOKEY,
			"graph %llu draws from %u generators, but number %zu was asked for",
			(unsigned long long)key, n, i);
	d = &img->m.rng_uses[first + i];
	*ret = (struct fdry_rng_use){ generator_name(img, d->generator), d->seed, d->offset,
				      d->increment };
	return 0;
}

static void state_set(struct fdry_image *img, uint32_t i, struct fdry_rng_state state)
{
	pthread_mutex_lock(&img->random->lock);
	img->random->states[i] = state;
	pthread_mutex_unlock(&img->random->lock);
}

int fdry_image_rng_seed(struct fdry_image *img, const char *generator, uint64_t seed)
{
	const struct fdry_rng_state state = { .seed = seed };
	uint32_t i = 0;
	int err;

	err = fdry_image_usable(img);
	if (err)
		return err;
	if (!generator) {
		for (i = 0; i < img->m.n_generators; i++)
			state_set(img, i, state);
		return 0;
	}
	err = generator_find(img, generator, &i);
	if (err)
		return err;
	state_set(img, i, state);
	return 0;
}

int fdry_image_rng_state(struct fdry_image *img, const char *generator, struct fdry_rng_state *ret)
{
	uint32_t i = 0;
	int err = generator_find(img, generator, &i);

	if (err)
		return err;
	err = fdry_need(ret);
	if (err)
		return err;
	pthread_mutex_lock(&img->random->lock);
	*ret = img->random->states[i];
	pthread_mutex_unlock(&img->random->lock);
	return 0;
}

int fdry_image_rng_set_state(struct fdry_image *img, const char *generator,
			     const struct fdry_rng_state *state)
{
	uint32_t i = 0;
	int err = generator_find(img, generator, &i);

	if (err)
		return err;
	err = fdry_need(state);
	if (err)
		return err;
	state_set(img, i, *state);
	return 0;
}

int fdry_image_rng_advance(struct fdry_image *img, const char *generator, uint64_t count)
{
	uint32_t i = 0;
	int err = generator_find(img, generator, &i);

	if (err)
		return err;
	pthread_mutex_lock(&img->random->lock);
	img->random->states[i].offset += count;
	pthread_mutex_unlock(&img->random->lock);
	return 0;
}
