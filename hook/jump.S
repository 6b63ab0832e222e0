/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jump.S - one exported jump for every driver symbol that is not hooked, and the slots.
 *
 * A slot holds the target of its symbol's calls. At first that is the slot's stub, which preserves
 * all argument registers and looks the symbol up in the real driver. Afterwards it is the driver's
 * function, and a call costs one indirect jump. Hooked symbols have a slot, too, through which
 * their C functions call the driver.
 *
 * jump-MACHINE.S has the code that depends on the machine:
 *	jump nr, symbol		load slot @nr and go there
 *	stub nr			go to fdry_jump_enter with @nr
 *	fdry_jump_enter		save, fdry_jump_resolve(nr), restore, jump to its result
 */
#if defined(__x86_64__)
#include "hook/jump-x86_64.S"
#elif defined(__aarch64__)
#include "hook/jump-aarch64.S"
#else
#error "the interposer knows x86-64 and aarch64"
#endif

	.text
#define JUMP(nr, symbol)			\
	.globl symbol;				\
	.type symbol, %function;		\
	.balign 16;				\
symbol:	jump nr;				\
	.size symbol, . - symbol;
#define HOOKED(nr, symbol)
#include "hook/symbols.inc"
#undef JUMP
#undef HOOKED

#define JUMP(nr, symbol) .Lstub##nr: stub nr;
#define HOOKED JUMP
#include "hook/symbols.inc"
#undef JUMP
#undef HOOKED

	.data
	.balign 8
	.globl fdry_jumps
	.hidden fdry_jumps
	.type fdry_jumps, %object
fdry_jumps:
#define JUMP(nr, symbol) .quad .Lstub##nr;
#define HOOKED JUMP
#include "hook/symbols.inc"
	.size fdry_jumps, . - fdry_jumps

	.section .note.GNU-stack, "", %progbits
