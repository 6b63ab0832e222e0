// SPDX-License-Identifier: Apache-2.0
/* decode_state.c - a decoder's token, position and length, in device memory and as arguments; see
 * foundry/run/scalars.h. */
#include <pthread.h>
#include <stdlib.h>

#include "foundry/run.h"
#include "lib/opts.h"
#include "lib/live.h"

enum { TOKEN, POSITION, LENGTH, SCALARS };

struct fdry_decode_state {
	struct fdry_scalars *scalars;
	pthread_mutex_t lock; /* guards @args, and keeps them equal to the numbers on the device */
	struct fdry_decode_state_args args;
};

static int addresses_read(struct fdry_decode_state *d)
{
	int err = fdry_scalars_addr(d->scalars, TOKEN, &d->args.token_addr);

	if (err)
		return err;
	err = fdry_scalars_addr(d->scalars, POSITION, &d->args.position_addr);
	if (err)
		return err;
	return fdry_scalars_addr(d->scalars, LENGTH, &d->args.length_addr);
}

static int state_make(struct fdry_decode_state *d, const struct fdry_decode_state_opts *o)
{
	static const uint32_t dtypes[SCALARS] = {
		[TOKEN] = FDRY_U32, [POSITION] = FDRY_I32, [LENGTH] = FDRY_I32
	};
	const union fdry_scalars_value values[SCALARS] = { [LENGTH] = { .i32 = 1 } };
	struct fdry_scalars_opts so = { .sz = sizeof(so),
					.driver = o->driver,
					.device = o->device,
					.count = SCALARS,
					.dtypes = dtypes,
					.values = values,
					.addr = o->addr };
	int err = fdry_scalars_new(&so, &d->scalars);

	d->args.length = 1;
	return err ? err : addresses_read(d);
}

int fdry_decode_state_new(const struct fdry_decode_state_opts *opts, struct fdry_decode_state **ret)
{
	struct fdry_decode_state_opts o;
	struct fdry_decode_state *d;
	int err = fdry_need(ret) ?: fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	d = calloc(1, sizeof(*d));
	if (!d)
		return fdry_nomem();
	pthread_mutex_init(&d->lock, NULL);
	err = state_make(d, &o);
	fdry_live_add(d);
	if (err)
		goto out_free;
	*ret = d;
	return 0;
out_free:
	fdry_decode_state_free(d);
	return err;
}

void fdry_decode_state_free(struct fdry_decode_state *d)
{
	if (!d || fdry_live_end(d, "the decode state"))
		return;
	fdry_scalars_free(d->scalars);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int state_check(const struct fdry_decode_state *d)
{
	int err = fdry_need(d);

	return err ? err : fdry_live_check(d, "the decode state");
}

int fdry_decode_state_set(struct fdry_decode_state *d, uint32_t token, uint32_t step,
			  CUstream stream)
{
	union fdry_scalars_value v[SCALARS] = { [TOKEN] = { .u32 = token } };
	int err = state_check(d);

	if (err)
		return err;
	if (step >= INT32_MAX)
		return fdry_fail(
			FDRY_E_RANGE,
			"step %u is too far: position and length are 32-bit, so steps go to %d",
			step, INT32_MAX - 1);
	v[POSITION].i32 = (int32_t)step;
	v[LENGTH].i32 = (int32_t)step + 1;
	pthread_mutex_lock(&d->lock);
	err = fdry_scalars_update(d->scalars, 0, SCALARS, v, stream);
	if (err)
		goto out_unlock;
	d->args.token = token;
	d->args.position = v[POSITION].i32;
	d->args.length = v[LENGTH].i32;
out_unlock:
	pthread_mutex_unlock(&d->lock);
	return err;
}

int fdry_decode_state_use(struct fdry_decode_state *d, uint32_t source)
{
	int err = state_check(d);

	if (err)
		return err;
	if (source > FDRY_DECODE_STATE_DEVICE)
		return fdry_fail(
			FDRY_E_INVAL,
			"%u is not a source of a decode state; see enum fdry_decode_state_source",
			source);
	pthread_mutex_lock(&d->lock);
	d->args.source = source;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

int fdry_decode_state_args(struct fdry_decode_state *d, struct fdry_decode_state_args *ret)
{
	int err = state_check(d) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&d->lock);
	*ret = d->args;
	pthread_mutex_unlock(&d->lock);
	return 0;
}
