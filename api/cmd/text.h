/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - the text that dump writes and undump reads: Documentation/format/store-text.rst. */
#ifndef FDRY_API_CMD_TEXT_H
#define FDRY_API_CMD_TEXT_H

#define CMD_TEXT_FIRST "foundry-dump 1"
#define CMD_TEXT_LINE 32 /* bytes per line of digits */

#endif
