// SPDX-License-Identifier: Apache-2.0
// Code out of line: functions of their own, jump tables, calls through pointers.

__device__ __noinline__ int square(int x)
{
	return x * x + 1;
}

__device__ __noinline__ int cube(int x)
{
	return square(x) * x;
}

typedef int (*op)(int);
__device__ op ops[2] = { square, cube };

extern "C" __global__ void direct(int *out, int x)
{
	out[threadIdx.x] = cube(x + threadIdx.x);
}

extern "C" __global__ void indirect(int *out, int x, int which)
{
	out[threadIdx.x] = ops[which & 1](x + threadIdx.x);
}

extern "C" __global__ void jump(int *out, int which)
{
	int v = out[threadIdx.x];

	switch (which) {
	case 0: v = v * 3 + 1; break;
	case 1: v = v / 7; break;
	case 2: v ^= 0x5a5a; break;
	case 3: v = __popc(v); break;
	case 4: v = square(v); break;
	case 5: v = __brev(v); break;
	case 6: v = v % 11; break;
	case 7: v = v << (v & 7); break;
	}
	out[threadIdx.x] = v;
}

extern "C" __global__ void divide(long long *out, long long by)
{
	out[threadIdx.x] = out[threadIdx.x] / by;
}
