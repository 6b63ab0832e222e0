// SPDX-License-Identifier: Apache-2.0
/* Kernels for the software driver: one linear layer that is trained, and a decoder's bookkeeping.
 */
#include "arch/sim/kernel.h"

/* y = x w + b over n samples; w and b are adjacent. */
SIM_KERNEL(linear, (const float *, w), (const float *, x), (float *, y), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		y[i] = x[i] * w[0] + w[1];
}

/* Adds to the gradients of w and b of the mean squared error, and writes it. */
SIM_KERNEL(mse_backward, (const float *, x), (const float *, y), (const float *, target),
	   (float *, grad), (float *, loss), (int, n))
{
	float d, sum = 0;
	int i;

	if (SIM_X)
		return;
	for (i = 0; i < n; i++) {
		d = y[i] - target[i];
		sum += d * d;
		grad[0] += 2 * d * x[i] / (float)n;
		grad[1] += 2 * d / (float)n;
	}
	*loss = sum / (float)n;
}

/* A step down the gradients; the rate is in device memory. */
SIM_KERNEL(sgd, (float *, w), (const float *, grad), (const float *, rate), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		w[i] -= *rate * grad[i];
}

/* y += alpha x, with alpha in device memory. */
SIM_KERNEL(axpy_at, (const float *, alpha), (const float *, x), (float *, y), (int, n))
{
	int i = (int)SIM_X;

	if (i < n)
		y[i] += *alpha * x[i];
}

/* As struct fdry_decode_state_args. */
struct decode {
	const uint32_t *token_at;
	const int32_t *position_at, *length_at;
	uint32_t token;
	int32_t position, length;
	uint32_t source;
};

/* log[position] = token and length, read from the addresses in the state. */
SIM_KERNEL(decode_step, (struct decode, d), (uint64_t *, log), (int, n))
{
	uint32_t token = d.source ? *d.token_at : d.token;
	int32_t position = d.source ? *d.position_at : d.position;
	int32_t length = d.source ? *d.length_at : d.length;

	if (!SIM_X && position >= 0 && position < n)
		log[position] = (uint64_t)token << 32 | (uint32_t)length;
}
