// SPDX-License-Identifier: Apache-2.0
// heap.cu - finds the device's heap: the address of a block that is freed again.

__device__ unsigned long long fdry_heap_block;

extern "C" __global__ void fdry_heap_probe()
{
	void *block = malloc(16);

	fdry_heap_block = (unsigned long long)block;
	free(block);
}
