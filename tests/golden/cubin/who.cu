// SPDX-License-Identifier: Apache-2.0
// Says which of a fatbin's entries it is: a test changes the number where it finds it.

extern "C" __global__ void who(unsigned int *out)
{
	*out = 0x5a5a00c1;
}
