// SPDX-License-Identifier: Apache-2.0
// Functions that kernels call through pointers. UNTABLED: one of them is in no table.

typedef int (*op)(int);

__device__ __noinline__ int one(int x)
{
	return x * x + 1;
}

__device__ __noinline__ int two(int x)
{
	return one(x) * x;
}

__device__ __noinline__ int three(int x)
{
	return x ^ 0x5a5a;
}

__device__ op table[2] = { one, two };
__constant__ op again[1] = { two };

extern "C" __global__ void by_table(int *out, int x, int which)
{
	out[threadIdx.x] = table[which & 1](x) + again[which >> 1](x);
}

extern "C" __global__ void by_argument(int *out, int x, op f)
{
	out[threadIdx.x] = f(x);
}

extern "C" __global__ void by_none(int *out, int x)
{
	out[threadIdx.x] = three(x);
}

#ifdef UNTABLED
__device__ op kept;

extern "C" __global__ void keep(void)
{
	kept = three;
}
#endif
