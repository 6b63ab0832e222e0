// SPDX-License-Identifier: Apache-2.0
// Kernels that call into the driver's own device code.
#include <cassert>
#include <cstdio>

extern "C" __global__ void says(int n)
{
	printf("n is %d\n", n);
}

extern "C" __global__ void takes(int **out, int n)
{
	out[threadIdx.x] = (int *)malloc(n);
}

extern "C" __global__ void gives(int **out)
{
	free(out[threadIdx.x]);
}

extern "C" __global__ void checks(int *out, int n)
{
	assert(n < 100);
	out[threadIdx.x] = n;
}

extern "C" __global__ void checks_too(int *out, int n)
{
	assert(n != 7 && "seven");
	out[threadIdx.x] = n + 1;
}

extern "C" __global__ void quiet(int *out)
{
	out[threadIdx.x] = 42;
}
