// SPDX-License-Identifier: Apache-2.0
/* Kernels for the software driver that tests of every layer launch. */
#include "arch/sim/kernel.h"

SIM_KERNEL(vecadd, (const float *, a), (const float *, b), (float *, c), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		c[i] = a[i] + b[i];
}

SIM_KERNEL(saxpy, (float, a), (const float *, x), (float *, y), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		y[i] = a * x[i] + y[i];
}

SIM_KERNEL(fill, (uint32_t *, dst), (uint32_t, value), (size_t, n))
{
	size_t i = SIM_X;

	if (i < n)
		dst[i] = value;
}

SIM_KERNEL(copy, (const uint32_t *, src), (uint32_t *, dst), (size_t, n))
{
	size_t i = SIM_X;

	if (i < n)
		dst[i] = src[i];
}

SIM_KERNEL(scale, (float *, x), (float, factor), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		x[i] *= factor;
}

/* One block's sum of n floats, as a tree in shared memory: blockDim.x floats of it, static. */
#define REDUCE_THREADS 256

SIM_BLOCK_KERNEL(reduce, REDUCE_THREADS * sizeof(float), (const float *, x), (float *, sum),
		 (int, n))
{
	float *part = (float *)(void *)SIM_SHARED;
	int i, t, step;

	for (t = 0; t < REDUCE_THREADS; t++) {
		part[t] = 0;
		for (i = t; i < n; i += REDUCE_THREADS)
			part[t] += x[i];
	}
	for (step = REDUCE_THREADS / 2; step > 0; step /= 2)
		for (t = 0; t < step; t++)
			part[t] += part[t + step];
	sum[sim->index.x] = part[0];
}

/* Needs n floats of dynamic shared memory: dst is src backwards. */
SIM_BLOCK_KERNEL(reverse, 0, (const float *, src), (float *, dst), (int, n))
{
	float *part = (float *)(void *)SIM_SHARED;
	int i;

	if ((size_t)n * sizeof(float) > sim->shared_bytes)
		return;
	for (i = 0; i < n; i++)
		part[i] = src[i];
	for (i = 0; i < n; i++)
		dst[i] = part[n - 1 - i];
}

/* Parameters of every size and alignment; the kernel writes each for the host to compare. */
struct three {
	char c[3];
};

struct mixed {
	double d;
	short s;
};

SIM_KERNEL(odd, (char, a), (short, b), (struct three, c), (long long, d), (struct mixed, e),
	   (unsigned char, f), (double *, out), (float, g), (char, h))
{
	if (SIM_X)
		return;
	out[0] = a;
	out[1] = b;
	out[2] = c.c[0] + 10 * c.c[1] + 100 * c.c[2];
	out[3] = (double)d;
	out[4] = e.d;
	out[5] = e.s;
	out[6] = f;
	out[7] = (double)g;
	out[8] = h;
}

/* A module variable: every load of the module has its own. */
SIM_VARIABLE int counter = 41;
SIM_VARIABLE float table[16] = { 1, 2, 4, 8 };

SIM_KERNEL(count, (int *, out))
{
	if (SIM_X == 0)
		*out = ++counter;
}

SIM_KERNEL(lookup, (const int *, index), (float *, out), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		out[i] = table[index[i] & 15];
}

SIM_KERNEL(nothing)
{
	(void)sim;
}

/* Each step reads and writes x, so the result shows the order of launches. */
SIM_KERNEL(step, (uint64_t *, x), (uint64_t, salt), (uint32_t, spins))
{
	uint32_t i;

	if (SIM_X)
		return;
	for (i = 0; i <= spins; i++)
		*x = *x * 6364136223846793005u + salt;
}

/* The condition of a handle becomes *value, which @down counts down before. */
SIM_KERNEL(condition, (uint64_t, handle), (uint32_t *, value), (uint32_t, down))
{
	if (SIM_X)
		return;
	*value -= down;
	sim_condition_set(sim->block, handle, *value);
}

/* One step of a decoder's state: the token, its position, and the number of keys so far. */
SIM_KERNEL(decode, (const uint32_t *, token), (const int32_t *, position),
	   (const int32_t *, length), (uint64_t *, out))
{
	if (SIM_X)
		return;
	*out = *out * 31 + *token + 7 * (uint64_t)*position + 1000003 * (uint64_t)*length;
}

/* A number from a counter, made as splitmix64 makes one; hosts compute the same. */
static uint64_t drawn(uint64_t seed, uint64_t offset, uint64_t i)
{
	uint64_t z = seed + (offset * 1000003 + i + 1) * 0x9E3779B97F4A7C15u;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

/* The state that a framework passes to a kernel that draws: the addresses of seed and offset, and
 * the graph's earlier draws. */
struct draw_state {
	const uint64_t *seed, *offset;
	uint32_t within;
	char captured;
};

SIM_KERNEL(draw, (uint64_t *, out), (struct draw_state, state), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		out[i] = drawn(*state.seed, *state.offset + state.within, (uint64_t)i);
}

/* The sum of the drawn numbers does not depend on the order of launches, and shows if a number was
 * drawn twice. */
SIM_KERNEL(tally, (uint64_t *, sum), (struct draw_state, state), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		sum[i] += drawn(*state.seed, *state.offset + state.within, (uint64_t)i);
}

/* The largest parameters that a kernel can have, as words; the kernel writes the first n of
 * them. */
struct words {
	uint64_t w[4093];
};

SIM_BLOCK_KERNEL(words, 0, (uint64_t *, dst), (uint64_t, n), (struct words, all))
{
	uint64_t i;

	(void)sim;
	for (i = 0; i < n; i++)
		dst[i] = all.w[i];
}
