// SPDX-License-Identifier: Apache-2.0
// Kernels that share variables of their module in every way that matters to slicing.

__device__ int counter;                               // two kernels write it
__device__ int untouched[4] = { 9, 9, 9, 9 };         // no kernel here reads it, copy() aside
__device__ int table[4] = { 10, 20, 30, 40 };         // one kernel reads it
__device__ int *into_table = &table[2];               // data that points at data
__constant__ int weights[4] = { 1, 2, 3, 4 };         // kernels read it, the host may write it
static __constant__ int biases[4] = { 5, 6, 7, 8 };

extern "C" __global__ void bump(int *out)
{
	out[threadIdx.x] = atomicAdd(&counter, 1);
}

extern "C" __global__ void bump_by(int *out, int by)
{
	out[threadIdx.x] = atomicAdd(&counter, by);
}

extern "C" __global__ void lookup(int *out, int i)
{
	out[threadIdx.x] = table[i & 3] + *into_table;
}

extern "C" __global__ void affine(int *out, int i)
{
	out[threadIdx.x] = out[threadIdx.x] * weights[i & 3] + biases[(i + 1) & 3];
}

extern "C" __global__ void own_static(int *out)
{
	static int calls = 7;

	out[threadIdx.x] = atomicAdd(&calls, 2);
}

extern "C" __global__ void copy(int *out)
{
	out[threadIdx.x] = untouched[threadIdx.x & 3];
}

extern "C" __global__ void alone(int *out)
{
	out[threadIdx.x] = threadIdx.x * 3;
}
