// SPDX-License-Identifier: Apache-2.0
// A kernel that launches another: dynamic parallelism, which cannot be restored.

extern "C" __global__ void child(int *out)
{
	out[threadIdx.x] = 1;
}

extern "C" __global__ void parent(int *out)
{
	child<<<1, 32>>>(out);
}
