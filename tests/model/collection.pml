/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collection.pml - the protocol of Documentation/design/collection.rst, as a model for spin.
 *
 * Two old objects, a parent P that links to a child C, exist without a name. A third one, N, which
 * links to C, does not exist yet. Three sessions work beside a collection. One puts P and C, and
 * names P. One puts C, then N, and gives up, so that its lease ends although its objects stay. One
 * resolves the name that the first one may have set. A session may die at any step. The writers'
 * lock is acquired once for each transaction, as LMDB does.
 *
 * Always: existing objects lead to existing objects, and so does the name. At the end: each object
 * that a session found or put exists.
 *
 *	spin -a collection.pml && cc -O2 -o pan pan.c && ./pan
 *
 * Each of -DNOTE_LATE, -DTRUST, -DNO_SCAN, -DDROP and -DCHILD_FIRST breaks one rule, and spin then
 * finds the loss.
 */

#define P 0
#define C 1
#define N 2
#define OBJECTS 3

bool there[OBJECTS];      /* the state that is committed */
bool announced, named;    /* of it, too: named: a ref leads to P */
byte changes;
bool lease[6];            /* session s has noted object o: lease[s * OBJECTS + o] ... */
bool lives[2];            /* ... and holds its lock, */
bool left[2];             /* or left it for a collection */
bool writing;             /* the writers' lock */
bool read_noted, reads;   /* the loader has noted P; has been told of it */

#define noted(o) (((lives[0] || left[0]) && lease[o]) || \
		  ((lives[1] || left[1]) && lease[OBJECTS + (o)]))
#define begin_write atomic { !writing -> writing = true }

/* Every existing object leads to existing ones, and so does the name. The object that the loader
 * resolved exists. */
#define whole ((!there[P] || there[C]) && (!there[N] || there[C]) && (!named || there[P]) && \
	       (!reads || there[P]))
#define end_write assert(whole); writing = false

inline note(s, o)
{
	lease[(s) * OBJECTS + (o)] = true
}

/* known: a view has decided it; otherwise the transaction does. */
inline look(o, known)
{
	atomic { known = there[o] && !announced }
#ifdef TRUST
	known = there[o];
#endif
}

inline put(s, o, known)
{
#ifdef NOTE_LATE
	look(o, known);
	note(s, o)
#else
	note(s, o);
	look(o, known)
#endif
}

/* The end of a session that wrote: while a collection is announced, its lease stays. */
inline end_session(s)
{
	atomic {
		if
		:: announced -> left[s] = true
		:: else -> skip
		fi;
#ifdef DROP
		left[s] = false;
#endif
		lives[s] = false
	}
}

proctype sealer()
{
	bool knows_c, knows_p;

	lives[0] = true;
	put(0, C, knows_c);
	if
	:: goto dead
	:: skip
	fi;
	put(0, P, knows_p);
	begin_write;
	atomic {
		there[C] = there[C] || !knows_c;
		there[P] = there[P] || !knows_p;
		/* the objects that a view showed must exist now */
		assert(there[C] && there[P]);
		named = true;
		changes++;
		end_write
	}
dead:
	end_session(0)
}

proctype giver()
{
	bool knows_c;

	lives[1] = true;
	put(1, C, knows_c);
	if
	:: goto dead
	:: skip
	fi;
	note(1, N);
	begin_write;
	atomic {
		there[C] = there[C] || !knows_c;
		assert(there[C]);
		there[N] = true;
		end_write
	}
dead:
	end_session(1)
}

/* By name, in a view that begins after the note: then it stays as long as the lease. */
proctype loader()
{
	bool found;

	atomic { found = named }
	if
	:: found ->
		read_noted = true;
		atomic { found = named; reads = found }
		if
		:: reads -> assert(there[P]); assert(there[C])
		:: else -> skip
		fi;
		atomic { read_noted = false; reads = false }
	:: else -> skip
	fi
}

proctype remover()
{
	begin_write;
	atomic { named = false; changes++; end_write }
}

/* One transaction: with the writers' lock, everything is marked that a session may rely on; then @o
 * is deleted if it is not marked. */
inline sweep(o)
{
	begin_write;
	atomic {
#ifdef NO_SCAN
		skip
#else
		if
		:: noted(P) || named || read_noted -> live[P] = true; live[C] = true
		:: else -> skip
		fi;
		if
		:: noted(N) || noted(C) -> live[C] = true
		:: else -> skip
		fi
#endif
	};
	/* a session that looks now sees the object that is about to be deleted */
	atomic {
		if
		:: dead[o] && !live[o] -> there[o] = false
		:: else -> skip
		fi;
		end_write
	}
}

proctype collector()
{
	bool live[OBJECTS], dead[OBJECTS];
	byte round = 0;

	do
	:: round < 2 ->
		begin_write;
		atomic { announced = true; end_write };
		/* marking: the sweep sees objects that are noted later */
		atomic {
			live[P] = noted(P) || named || read_noted;
			live[N] = noted(N);
			live[C] = noted(C) || live[P] || live[N]
		};
		atomic {
			dead[P] = there[P] && !live[P];
			dead[C] = there[C] && !live[C];
			dead[N] = there[N] && !live[N]
		};
#ifdef CHILD_FIRST
		sweep(C);
		sweep(P);
		sweep(N);
#else
		sweep(P);
		sweep(N);
		sweep(C);
#endif
		begin_write;
		atomic { announced = false; end_write };
		atomic { left[0] = false; left[1] = false };
		round++
	:: else -> break
	od
}

init {
	atomic {
		there[P] = true;
		there[C] = true;
		run sealer();
		run giver();
		run loader();
		run remover();
		run collector()
	}
}
