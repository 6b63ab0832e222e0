/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jump-aarch64.S - see jump.S. Arguments come in x0-x8 and q0-q7; x16 and x17 are free.
 * The load of the slot acquires, so this thread sees all that the thread which opened the driver
 * wrote.
 */
	.macro jump nr
	hint #34		/* bti c */
	adrp x16, fdry_jumps + 8 * \nr
	add x16, x16, :lo12:fdry_jumps + 8 * \nr
	ldar x16, [x16]
	br x16
	.endm

	.macro stub nr
	hint #34
	mov w17, #\nr
	b fdry_jump_enter
	.endm

	.text
	.balign 16
	.type fdry_jump_enter, %function
fdry_jump_enter:
	.cfi_startproc
	stp x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset x29, -224
	.cfi_offset x30, -216
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x8, [sp, #80]
	stp q0, q1, [sp, #96]
	stp q2, q3, [sp, #128]
	stp q4, q5, [sp, #160]
	stp q6, q7, [sp, #192]
	mov w0, w17
	bl fdry_jump_resolve
	mov x16, x0
	ldp q6, q7, [sp, #192]
	ldp q4, q5, [sp, #160]
	ldp q2, q3, [sp, #128]
	ldp q0, q1, [sp, #96]
	ldr x8, [sp, #80]
	ldp x6, x7, [sp, #64]
	ldp x4, x5, [sp, #48]
	ldp x2, x3, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #224
	.cfi_def_cfa_offset 0
	br x16
	.cfi_endproc
	.size fdry_jump_enter, . - fdry_jump_enter
