// SPDX-License-Identifier: Apache-2.0
// A kernel that sets the condition of a node of its graph, and one that does not.

extern "C" __global__ void decides(cudaGraphConditionalHandle handle, const unsigned int *value)
{
	cudaGraphSetConditional(handle, *value);
}

extern "C" __global__ void plain(unsigned int *value)
{
	++*value;
}
