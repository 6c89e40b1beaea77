/*
 * The session protocol of docs/reference/contract.md: a storage whose steps are atomic, two nodes, a network that loses
 * and delays, and a world outside that cancels, revokes, pauses.
 *
 * Every fault, and every choice that may be repeated, has a budget, and all budgets may be given up at any moment. So
 * every run ends, and at its end every acknowledged task must be final (`World`): liveness as a safety search sees it.
 * That runs do end is a search of its own, for cycles. What must hold meanwhile is asserted after each step (`check`).
 *
 * Bounds are macros, see `configurations.mjs`. `fault(X)` is true only in the search that must catch X, see `faults.mjs`.
 */

/* ------------------------------------------------------------------------------------------------------- words */

#define NODES 2
#define ALL (bit(TASKS) - 1)

/* Sets of tasks are bytes. What belongs to a task by configuration is a number with eight bits for each task. */
#define bit(task) (1 << (task))
#define has(set, task) ((set) & bit(task))
#define put(set, task) set = set | bit(task)
#define cut(set, task) set = set & (255 - bit(task))
#define of(numbers, task) (((numbers) >> (8 * (task))) & 255)

/* Faults. */
#define NONE 0
#define NOACK 1
#define TOKATT 2
#define GHOST 3
#define NOGONE 4
#define NOTTOK 5
#define ACKANY 6
#define CLEARSENT 7
#define NOENTRY 8
#define EARLY 9
#define UNDEAD 10
#define NOPROB 11
#define NOSOLO 12
#define TWICE 13
#define GCLAIM 14
#define GSTALE 15
#define SPIN 16
#define HELDRUN 17
#define SUSLATE 18
#define SUSEDGE 19
#define NOLEVEL 20
#define SAMELEVEL 21
#define NOFENCE 22
#define NORESUME 23
#define IDONLY 24
#define LOWEDGE 25
#define DEAF 26
#define NOAPART 27
#define fault(name) (FAULT == name)

/* An invariant. Spin prints the condition of an assertion that fails, and so its name, which is a constant false. */
#define must(name, condition) assert(name || (condition))
hidden byte final_once, one_structure, started_is_held, blocked_has_a_cause, cancelled_stays, belief_is_true,
  members_counted_once, flag_has_a_cause, no_overlap, tokens_grow, accepted_counts, claim_is_allowed, claim_is_new,
  innocent_survives, killer_is_found, all_tasks_end;

/* How an attempt goes on: MARK says that it has started, the rest are settlements. The first three are final states. */
#define SUCCESS 1
#define FAILED 2
#define CANCELLED 3
#define RETRY 4
#define RELEASED 5
#define FAILED_GROUP 6 /* failed, and cancels its group */
#define MARK 7
#define SUSPENDED 8 /* plus the task that it waits for */

/* Sessions. */
#define UNUSED 0
#define LIVE 1
#define SUSPECT 2
#define CONDEMNED 3
#define ENDED 4
#define over(session) (life[session] >= CONDEMNED)

/* Nodes. */
#define DOWN 0
#define UP 1
#define PAUSED 2

/* What a call wants: a claim of one task, of all, of none; or it is the other call, `resume`. */
#define NOTHING 0
#define ONE 1
#define ANY 2
#define RESUME 3
#define claiming(wanted) ((wanted) == ONE || (wanted) == ANY)

/* How a call is answered. */
#define OK 1
#define AGAIN 2
#define GONE 3

/* What becomes of a call, in this order: how it ends for its node, and whether it is (also) carried out late. */
#define ANSWERED 0
#define REQUEST_LOST 1
#define REPLY_LOST 2
#define ANSWERED_AND_LATE 3
#define ONLY_LATE 4
#define CRASHED_AND_LATE 5
#define LATE 6 /* such a call, at last */

/* What else happens: to a task, */
#define ENQUEUE 1
#define FALL_DUE 2
#define COMPLETE 3
#define TIME_OUT 4
#define OPEN_LANE 5
#define SWEEP 6
#define CANCEL 7
#define REVOKE 8
#define REVIVE 9 /* the operation retry */
#define TELL 10 /* plus the parent */
/* to a node. */
#define CRASH 1
#define LEAVE 2 /* the graceful end */
#define PAUSE 3
#define WAKE 4
#define FENCE 5

/* ----------------------------------------------------------------------------------------------------- storage */

/* Where a task is: in one of these sets, or an entry of a session (the token of its claim). */
byte known, ready, aside, due, blocked, done;
byte telling; /* of the final ones: not all dependents have been told */
#define entry(session, task) entries[(session) * TASKS + (task)]
byte entries[(SESSIONS + 1) * TASKS];
#define entries_of(session) (entry(session, 0) | entry(session, 1) | (TASKS > 2 -> entry(session, 2) : 0))

byte need[TASKS];        /* the parents that were not final, by name */
byte held, suspended;    /* of the blocked ones */
byte final[TASKS];
byte settled[TASKS];     /* the token of the last accepted settlement */
byte started, probation; /* of the entries: marked; of all: came back unmarked */
byte reclaims[TASKS];
bool groupCancelled, groupPaused;
#if FAULT == TOKATT
byte attempts[TASKS];
#endif

byte life[SESSIONS + 1], issued[SESSIONS + 1]; /* issued: the newest token of a session */
#define notice(session, task) notices[(session) * TASKS + (task)]
#define noticeSeq(session, task) noticeSeqs[(session) * TASKS + (task)]
byte notices[(SESSIONS + 1) * TASKS], noticeSeqs[(SESSIONS + 1) * TASKS], takenSeq[SESSIONS + 1];
byte nextToken = 1, nextSession = 1;

/* Kept for the assertions only. */
byte refused, wasCancelled, kills, members; /* members: of the group, unfinished, counted */
bool flagged;

/* ------------------------------------------------------------------------------------------------------- nodes */

byte up[NODES], sid[NODES], ack[NODES], seen[NODES];
byte fenced[NODES]; /* 1: since the last answer; 2: a call was answered, `resume` is next */
byte buffered[NODES], awaiting[NODES], running[NODES], sent[NODES]; /* awaiting: its mark; sent: its settlement */
byte onProbation[NODES], lone[NODES];
#define hold(node, task) holds[(node) * TASKS + (task)]
#define outcome(node, task) outcomes[(node) * TASKS + (task)]
byte holds[NODES * TASKS], outcomes[NODES * TASKS];

/* The answer that a node has not heard yet. While there is one, the node makes no other call. */
typedef Reply {
  byte status, token, want, marked, seq, probation, lone;
  byte claimed[TASKS], taken[TASKS]
}
Reply reply[NODES];

/* A request is composed and carried out in one step: whatever could happen while it travels could happen before or
   after it as well. One that arrives after its node gave it up is kept here. */
typedef Call {
  byte session, ack, seen, want, renew;
  byte op[TASKS], token[TASKS]
}
Call late;

/* ----------------------------------------------------------------------------------------------------- budgets */

byte crashes = CRASHES, pauses = PAUSES, lapses = LAPSES, losses = LOSSES, lates = LATES, fences = FENCES;
byte retries = RETRIES, releases = RELEASES, failures = FAILURES, groupFailures = GROUP_FAILURES;
byte suspensions = SUSPENSIONS, timeouts = TIMEOUTS, ends = ENDS;
byte cancels = CANCELS, revokes = REVOKES, revivals = REVIVALS, groupCancels = GROUP_CANCELS, groupPauses = GROUP_PAUSES;

/* Choices made before a step. Zero between steps. */
byte step, want, renew, how;

/* Scratch within one d_step. No part of a state; the names must not be those of Spin's own variables. */
hidden byte aTask, aParent, aSession, aNode, count, flag, first;
hidden byte callSession, callAck, callSeen, callWant, callRenew, callOp[TASKS], callToken[TASKS];
hidden byte status, given[TASKS], stale;

/* ------------------------------------------------------------------------------------------- parts of the steps */

#define doomed(task) (groupCancelled && has(GROUP, task))

/* The only door to a final state. */
inline finish(task, state) {
  must(final_once, !has(done, task));
  put(done, task);
  put(telling, task);
  final[task] = state;
  cut(held, task);
  cut(suspended, task);
  if :: !fault(GHOST) -> need[task] = 0 :: else fi;
  if :: state == CANCELLED -> put(wasCancelled, task) :: else fi;
  if :: has(GROUP, task) -> members-- :: else fi
}

inline toReady(task) {
  if :: doomed(task) -> finish(task, CANCELLED)
     :: else -> put(ready, task)
  fi
}

/* A child is touched only while it is blocked, and only by naming the parent. */
#define untold(child, parent) \
  (has(need[child], parent) && has(telling, parent) && (has(blocked, child) || fault(GHOST)))
inline tell(child, parent) {
  cut(need[child], parent);
  if :: final[parent] != SUCCESS && !has(ON_FINAL, child) -> cut(blocked, child); finish(child, CANCELLED)
     :: else ->
        if :: need[child] != 0 || (has(held, child) && !doomed(child) && !fault(HELDRUN)) -> skip
           :: else ->
              cut(blocked, child);
              cut(suspended, child);
              toReady(child)
        fi
  fi
}

/* The end of a step. With SPREAD dependents are told one by one, in steps of their own. */
inline conclude() {
#if !SPREAD
  do
  :: flag = 0;
     for (aTask : 0 .. TASKS - 1) {
       for (aParent : 0 .. TASKS - 1) { if :: untold(aTask, aParent) -> tell(aTask, aParent); flag = 1 :: else fi }
     };
     if :: flag == 0 -> break :: else fi
  od;
  telling = 0;
#else
  for (aParent : 0 .. TASKS - 1) {
    flag = 0;
    for (aTask : 0 .. TASKS - 1) { if :: untold(aTask, aParent) -> flag = 1 :: else fi };
    if :: flag == 0 -> cut(telling, aParent) :: else fi
  };
#endif
  check()
}

inline check() {
  count = 0;
  for (aTask : 0 .. TASKS - 1) {
    /* A task that was acknowledged is in exactly one structure. */
    flag = 0;
    for (aSession : 1 .. SESSIONS) { if :: entry(aSession, aTask) != 0 -> flag++ :: else fi };
    must(one_structure, (has(ready, aTask) != 0) + (has(aside, aTask) != 0) + (has(due, aTask) != 0)
                        + (has(blocked, aTask) != 0) + (has(done, aTask) != 0) + flag == (has(known, aTask) != 0));
    must(started_is_held, !has(started, aTask) || flag == 1);
    /* Who is blocked is held, or names a parent whose end is to come or to be told. */
    must(blocked_has_a_cause, !has(blocked, aTask) || has(held, aTask) || need[aTask] != 0);
    /* Only the operation retry starts a cancelled task again. */
    must(cancelled_stays, !has(wasCancelled, aTask) || (has(done, aTask) && final[aTask] == CANCELLED));
    if :: has(GROUP, aTask) && has(known, aTask) && !has(done, aTask) -> count++ :: else fi;
    /* What a node believes to hold it holds, unless its session is over or a notice is on its way. */
    for (aNode : 0 .. NODES - 1) {
      if :: sid[aNode] != 0 && !over(sid[aNode]) && has(buffered[aNode] | awaiting[aNode] | running[aNode], aTask) ->
            must(belief_is_true, entry(sid[aNode], aTask) == hold(aNode, aTask)
                                 || (notice(sid[aNode], aTask) >= hold(aNode, aTask)
                                     && noticeSeq(sid[aNode], aTask) > seen[aNode]))
         :: else
      fi
    }
  };
  /* The members of a group are counted once each, and only who may cancels it. */
  must(members_counted_once, members == count);
  must(flag_has_a_cause, groupCancelled == flagged);
  /* With fences in time, and nobody who takes tasks away, handlers do not overlap. */
  must(no_overlap, !TIMELY || !(running[0] & running[1]))
}

/* Of a session that is over nothing is read any more but its entries. */
inline close(session, as) {
  for (aTask : 0 .. TASKS - 1) { notice(session, aTask) = 0; noticeSeq(session, aTask) = 0 };
  issued[session] = 0;
  takenSeq[session] = 0;
  life[session] = as
}

/* Takes the entry of a task away, wherever it is. A session that is not over is told. */
inline takeAway(task) {
  for (aSession : 1 .. SESSIONS) {
    if :: entry(aSession, task) != 0 ->
          if :: !over(aSession) ->
                takenSeq[aSession]++;
                notice(aSession, task) = entry(aSession, task);
                noticeSeq(aSession, task) = takenSeq[aSession]
             :: else
          fi;
          entry(aSession, task) = 0
       :: else
    fi
  };
  cut(started, task)
}

/* What was taken from a session goes back, on probation if it was not started, or is poison. */
inline takeBack(task, counts) {
  if :: !MARKS -> toReady(task)
     :: MARKS && !counts -> if :: !fault(NOPROB) -> put(probation, task) :: else fi; toReady(task)
     :: MARKS && counts ->
        if :: reclaims[task] < MAX_RECLAIMS -> reclaims[task]++; toReady(task)
           :: else -> must(innocent_survives, !has(INNOCENT, task)); finish(task, FAILED)
        fi
  fi
}

#define level(task) of(LEVEL, task)
#define sinks(task, parent) (LEVELS && level(parent) < level(task) && !fault(LOWEDGE))
#define refuses(task, parent) (has(done, parent) && final[parent] != SUCCESS && !has(ON_FINAL, task))

/* A settlement cannot be refused: what could never be released, or only in a circle, ends here. */
inline suspend(task, parent) {
  if :: !has(known, parent) || parent == task || refuses(task, parent) -> finish(task, CANCELLED)
     :: LEVELS && !fault(NOLEVEL) && level(parent) < level(task) + 1 - fault(SAMELEVEL) -> finish(task, CANCELLED)
     :: else ->
        if :: has(done, parent) && !fault(SUSLATE) -> toReady(task)
           :: else -> put(need[task], parent); put(blocked, task); put(suspended, task)
        fi
  fi
}

inline settle(session, task, token, as) {
  if :: entry(session, task) == token || (fault(NOENTRY) && over(session) && has(known, task) && !has(done, task)) ->
#if FAULT == TOKATT
        if :: as == RETRY -> attempts[task]++ :: else fi;
#else
        must(tokens_grow, settled[task] < token || fault(NOENTRY));
#endif
        entry(session, task) = 0;
        cut(started, task);
        settled[task] = token;
        if :: as == SUCCESS || as == FAILED -> finish(task, as)
           :: as == FAILED_GROUP -> finish(task, FAILED); groupCancelled = 1; flagged = 1
           :: as == RETRY ->
              cut(probation, task);
              if :: doomed(task) -> finish(task, CANCELLED) :: else -> put(due, task) fi
           :: as == RELEASED -> toReady(task)
           :: as >= SUSPENDED -> cut(probation, task); suspend(task, as - SUSPENDED)
        fi
     :: else ->
        /* The repeat of an accepted settlement counts as accepted, and changes nothing. */
        if :: settled[task] == token ->
              if :: fault(TWICE) && has(GROUP, task) && as <= FAILED -> members-- :: else fi
           :: else ->
              put(stale, task);
              if :: fault(GSTALE) && as == FAILED_GROUP -> groupCancelled = 1 :: else fi
        fi
  fi;
  /* What is called accepted did count, and what is called stale did not. */
  must(accepted_counts,
       as != SUCCESS || (has(done, task) && final[task] == SUCCESS && settled[task] == token) == !has(stale, task))
}

inline claim(session) {
  first = 1;
  for (aTask : 0 .. TASKS - 1) {
    if :: has(ready, aTask) && (callWant == ANY || first) ->
          if :: doomed(aTask) && !fault(GCLAIM) -> cut(ready, aTask); finish(aTask, CANCELLED)
             :: !doomed(aTask) && groupPaused && has(GROUP, aTask) ->
                if :: !fault(SPIN) -> cut(ready, aTask); put(aside, aTask) :: else fi
             :: else ->
                must(claim_is_allowed, !doomed(aTask) && !has(held, aTask));
                cut(ready, aTask);
                first = 0;
#if FAULT == TOKATT
                entry(session, aTask) = attempts[aTask] + 1
#else
                entry(session, aTask) = nextToken
#endif
          fi
       :: else
    fi
  };
  if :: !first -> issued[session] = nextToken; nextToken++ :: else fi
}

/* The one call of a running node: marks and settlements, the look at the session, notices, renewal, claim. */
inline work() {
  stale = 0;
  for (aTask : 0 .. TASKS - 1) {
    given[aTask] = 0;
    if :: callOp[aTask] == MARK ->
          if :: entry(callSession, aTask) == callToken[aTask] -> put(started, aTask); cut(probation, aTask) :: else fi
       :: callOp[aTask] != 0 && callOp[aTask] != MARK -> settle(callSession, aTask, callToken[aTask], callOp[aTask])
       :: else
    fi
  };
  if :: life[callSession] == CONDEMNED && ((fault(NOGONE) && claiming(callWant)) || (fault(UNDEAD) && callRenew)) ->
        life[callSession] = LIVE
     :: else
  fi;
  if :: over(callSession) -> status = GONE
     :: else ->
        status = OK;
        for (aTask : 0 .. TASKS - 1) {
          if :: noticeSeq(callSession, aTask) != 0 && noticeSeq(callSession, aTask) <= callSeen ->
                notice(callSession, aTask) = 0; noticeSeq(callSession, aTask) = 0
             :: else
          fi
        };
        if :: callRenew && life[callSession] == SUSPECT && !fault(DEAF) -> life[callSession] = LIVE :: else fi;
        if :: claiming(callWant) ->
              if :: issued[callSession] != callAck && !fault(NOACK) -> status = AGAIN
                 :: else -> claim(callSession)
              fi
           :: else
        fi;
        for (aTask : 0 .. TASKS - 1) {
          if :: (callWant == RESUME
                 || (claiming(callWant) && (entry(callSession, aTask) > callAck || fault(TOKATT))
                     && !(fault(NOACK) && (first || entry(callSession, aTask) != issued[callSession])))) ->
                given[aTask] = entry(callSession, aTask)
             :: else
          fi
        }
  fi
}

/* ------------------------------------------------------------------------------------------- steps of the nodes */

inline forget(node, task) {
  cut(buffered[node], task); cut(awaiting[node], task); cut(running[node], task); cut(sent[node], task);
  cut(onProbation[node], task); cut(lone[node], task);
  hold(node, task) = 0; outcome(node, task) = 0
}

inline clearReply(node) {
  reply[node].status = 0; reply[node].token = 0; reply[node].want = 0; reply[node].marked = 0;
  reply[node].seq = 0; reply[node].probation = 0; reply[node].lone = 0;
  for (aTask : 0 .. TASKS - 1) { reply[node].claimed[aTask] = 0; reply[node].taken[aTask] = 0 }
}

/* Nothing of the session is held any more. */
inline leave(node) {
  for (aTask : 0 .. TASKS - 1) { forget(node, aTask) };
  sid[node] = 0; ack[node] = 0; seen[node] = 0; fenced[node] = 0
}

inline crash(node) {
  clearReply(node);
  leave(node);
  up[node] = DOWN
}

inline compose(node) {
  if :: sid[node] == 0 -> sid[node] = nextSession; life[nextSession] = LIVE; nextSession++; up[node] = UP :: else fi;
  callSession = sid[node]; callAck = ack[node]; callSeen = seen[node]; callWant = want; callRenew = renew;
  for (aTask : 0 .. TASKS - 1) {
    callToken[aTask] = hold(node, aTask);
    if :: want == RESUME -> callOp[aTask] = 0
       :: want != RESUME && MARKS && has(awaiting[node] | running[node], aTask) -> callOp[aTask] = MARK
       :: else -> callOp[aTask] = outcome(node, aTask)
    fi;
    if :: callOp[aTask] == 0 -> callToken[aTask] = 0 :: else fi
  }
}

inline keepLate() {
  late.session = callSession; late.ack = callAck; late.seen = callSeen; late.want = callWant; late.renew = callRenew;
  for (aTask : 0 .. TASKS - 1) { late.op[aTask] = callOp[aTask]; late.token[aTask] = callToken[aTask] }
}

inline takeLate() {
  callSession = late.session; callAck = late.ack; callSeen = late.seen; callWant = late.want; callRenew = late.renew;
  late.session = 0; late.ack = 0; late.seen = 0; late.want = 0; late.renew = 0;
  for (aTask : 0 .. TASKS - 1) {
    callOp[aTask] = late.op[aTask]; callToken[aTask] = late.token[aTask];
    late.op[aTask] = 0; late.token[aTask] = 0
  }
}

inline answer(node) {
  reply[node].status = status;
  reply[node].want = callWant;
  reply[node].marked = awaiting[node];
  if :: status != GONE ->
        reply[node].token = issued[callSession];
        if :: callWant != RESUME -> reply[node].seq = takenSeq[callSession] :: else fi;
        for (aTask : 0 .. TASKS - 1) {
          if :: callWant != RESUME -> reply[node].taken[aTask] = notice(callSession, aTask) :: else fi;
          if :: fault(CLEARSENT) -> notice(callSession, aTask) = 0; noticeSeq(callSession, aTask) = 0 :: else fi;
          reply[node].claimed[aTask] = given[aTask];
          if :: given[aTask] && has(probation, aTask) -> put(reply[node].probation, aTask) :: else fi;
          if :: given[aTask] && reclaims[aTask] > 0 -> put(reply[node].lone, aTask) :: else fi
        }
     :: else
  fi
}

inline take(node, task) {
  must(claim_is_new, hold(node, task) == 0);
  hold(node, task) = reply[node].claimed[task];
  if :: has(reply[node].probation, task) -> put(onProbation[node], task) :: else fi;
  if :: has(reply[node].lone, task) -> put(lone[node], task) :: else fi;
  if :: MARKS -> put(buffered[node], task) :: else -> put(running[node], task) fi
}

/* After doubt: adopts what the storage says that the session holds, and drops what it does not. */
inline resume(node) {
  for (aTask : 0 .. TASKS - 1) {
    if :: reply[node].claimed[aTask] == hold(node, aTask) -> skip
       :: fault(IDONLY) && reply[node].claimed[aTask] && hold(node, aTask) -> skip
       :: else ->
          forget(node, aTask);
          if :: reply[node].claimed[aTask] -> take(node, aTask) :: else fi
    fi
  };
  fenced[node] = 0;
  if :: reply[node].token > ack[node] -> ack[node] = reply[node].token :: else fi
}

/* A node hears the answer to its call. */
inline hear(node) {
  if :: reply[node].status == GONE -> leave(node)
     :: else ->
        /* Ends are answered, accepted or not. */
        for (aTask : 0 .. TASKS - 1) { if :: has(sent[node], aTask) -> forget(node, aTask) :: else fi };
        /* What was taken: only what is not newer than the notice. */
        if :: reply[node].seq > seen[node] ->
              for (aTask : 0 .. TASKS - 1) {
                if :: (hold(node, aTask) && reply[node].taken[aTask]
                       && (reply[node].taken[aTask] >= hold(node, aTask) || fault(NOTTOK))) -> forget(node, aTask)
                   :: else
                fi
              };
              seen[node] = reply[node].seq
           :: else
        fi;
        /* What was marked may start. */
        if :: reply[node].status == OK && !fenced[node] ->
              running[node] = running[node] | (awaiting[node] & reply[node].marked);
              awaiting[node] = awaiting[node] & (255 - reply[node].marked)
           :: else
        fi;
        if :: reply[node].want == RESUME -> resume(node)
           :: else ->
              if :: fenced[node] -> fenced[node] = (fault(NORESUME) -> 0 : 2)
                 :: else ->
                    for (aTask : 0 .. TASKS - 1) {
                      if :: (reply[node].claimed[aTask] > ack[node]
                             || (fault(TOKATT) && reply[node].claimed[aTask] && !hold(node, aTask))) -> take(node, aTask)
                         :: else
                      fi
                    }
              fi;
              /* Only a claim brings the entries up to the token. */
              if :: (claiming(reply[node].want) || fault(ACKANY)) && reply[node].token > ack[node] ->
                    ack[node] = reply[node].token
                 :: else
              fi
        fi
  fi;
  clearReply(node)
}

/* --------------------------------------------------------------------------------------------------- processes */

#define FIRST_SESSION TASKS
#define FIRST_NODE (TASKS + SESSIONS)

/* A task as the world sees it: enqueued by its caller, moved by the clock and by upkeep, cancelled, retried. */
#define me _pid
#define parents of(AFTER, me)
#define unfinished has(known & (255 - done), me)
#define before (me == 0 || has(known | refused, me - 1))
#define held_back (need[me] != 0 || (has(held, me) && !doomed(me) && !fault(HELDRUN)))
active [TASKS] proctype Task() {
  do
  :: atomic {
       if
       :: !has(known | refused, me) && before -> step = ENQUEUE
       :: has(due, me) -> step = FALL_DUE
       :: has(blocked & held, me) -> step = COMPLETE
       :: has(suspended, me) && timeouts > 0 -> timeouts--; step = TIME_OUT
       :: has(aside, me) && !groupPaused -> step = OPEN_LANE
       :: doomed(me) && unfinished && (!has(blocked, me) || has(held, me)) -> step = SWEEP
       :: unfinished && cancels > 0 -> cancels--; step = CANCEL
       :: unfinished && !has(ready | aside | due | blocked, me) && revokes > 0 -> revokes--; step = REVOKE
       :: has(done, me) && final[me] != SUCCESS && revivals > 0 -> revivals--; step = REVIVE
#if SPREAD
       :: untold(me, 0) -> step = TELL + 0
       :: untold(me, 1) -> step = TELL + 1
       :: TASKS > 2 && untold(me, 2) -> step = TELL + 2
#endif
       fi;
       d_step {
         if
         :: step == ENQUEUE ->
              flag = 0;
              for (aParent : 0 .. TASKS - 1) {
                if :: !has(parents, aParent) -> skip
                   :: has(parents, aParent) && (!has(known, aParent) || sinks(me, aParent)) -> put(refused, me)
                   :: else -> if :: refuses(me, aParent) -> flag = 1 :: else fi
                fi
              };
              if :: has(refused, me) -> skip
                 :: else ->
                    put(known, me);
                    if :: has(GROUP, me) -> members++ :: else fi;
                    if :: has(HELD, me) -> put(held, me) :: else fi;
                    need[me] = parents & (255 - done);
                    if :: flag -> finish(me, CANCELLED)
                       :: else -> if :: held_back -> put(blocked, me) :: else -> toReady(me) fi
                    fi
              fi
         :: step == FALL_DUE || step == OPEN_LANE -> cut(due, me); cut(aside, me); toReady(me)
         :: step == COMPLETE -> cut(blocked, me); finish(me, SUCCESS)
         :: step == TIME_OUT ->
              if :: !fault(SUSEDGE) -> need[me] = 0 :: else fi;
              cut(blocked, me); cut(suspended, me); toReady(me)
         :: step == CANCEL || step == SWEEP ->
              takeAway(me);
              cut(ready, me); cut(aside, me); cut(due, me); cut(blocked, me);
              finish(me, CANCELLED)
         :: step == REVOKE -> takeAway(me); takeBack(me, true)
         :: step == REVIVE ->
              cut(done, me); cut(telling, me); cut(wasCancelled, me); cut(probation, me);
              final[me] = 0; reclaims[me] = 0;
              if :: has(GROUP, me) -> members++ :: else fi;
              toReady(me)
         :: step >= TELL -> tell(me, step - TELL)
         fi;
         step = 0;
         conclude()
       } }
  od
}
#undef me

/* A session as the others see it: suspect, condemned, drained one entry a step. */
#define me (_pid - FIRST_SESSION + 1)
#define silent (!(up[0] == UP && sid[0] == me) && !(up[1] == UP && sid[1] == me))
/* With TIMELY: a node whose beats are lost has fenced itself, and its handlers have ended, before it is condemned. */
#define quiet(node) (sid[node] != me || up[node] != UP || (fenced[node] && !running[node] && !reply[node].status))
active [SESSIONS] proctype Session() {
  do
  :: d_step { life[me] == LIVE && (silent || lapses > 0) ->
       if :: silent -> skip :: else -> lapses-- fi;
       if :: SUSPICION -> life[me] = SUSPECT :: else -> close(me, CONDEMNED) fi }
  :: d_step { life[me] == SUSPECT && (silent || lapses > 0) && (!TIMELY || fault(NOFENCE) || (quiet(0) && quiet(1))) ->
       if :: silent -> skip :: else -> lapses-- fi;
       close(me, CONDEMNED) }
  :: atomic { (over(me) || (fault(EARLY) && life[me] == SUSPECT)) && entries_of(me) ->
       if :: entry(me, 0) -> step = 0
          :: entry(me, 1) -> step = 1
#if TASKS > 2
          :: entry(me, 2) -> step = 2
#endif
       fi;
       d_step {
         entry(me, step) = 0;
         flag = has(started, step) != 0;
         cut(started, step);
         if :: life[me] == ENDED -> toReady(step) :: else -> takeBack(step, flag) fi;
         step = 0;
         conclude()
       } }
  od
}
#undef me

/* A node. It makes no call that would change nothing, so that runs end. */
#define me (_pid - FIRST_NODE)
#define reachable (up[me] != PAUSED && !reply[me].status && ((known | refused) != ALL || done != known) \
                   && (sid[me] || (nextSession <= SESSIONS && isTurn)))
#define isTurn (me == 0 || nextSession > 1) /* nodes are alike, so 0 comes first */
#define mayClaim (!fenced[me] && (ready != 0 || (issued[sid[me]] != ack[me] && !fault(NOACK))))
#define mustSpeak (sent[me] || awaiting[me] || takenSeq[sid[me]] > seen[me] || over(sid[me]) || fenced[me] == 1)
#define mustBeat (life[sid[me]] == SUSPECT)
/* On probation, or taken back before: not called before its mark is written; and of those taken back one at a time. */
#define wary (onProbation[me] | lone[me])
#define apart (APART && !fault(NOAPART))
#define busy(tasks) ((awaiting[me] | running[me]) & (tasks))
#define mayStart(task) (has(buffered[me] & wary, task) \
                        && (fault(NOSOLO) || (!(has(lone[me], task) && busy(apart -> wary : lone[me])) \
                                              && !(apart && busy(lone[me])))))
/* Of the others nobody sees when they start, until a call marks them. */
#define started_by(node) (running[node] | (buffered[node] & (255 - wary)))
#define able (started_by(me) & (255 - KILLER))
#define able_or_may_start(task) (has(able, task) || mayStart(task))
#define more_to_say(task) (mayClaim || mustSpeak || mustBeat || (task < 1 && able_or_may_start(1)) \
                           || (TASKS > 2 && task < 2 && able_or_may_start(2)))
/* What has become of a task by the time of a call: it stays where it is (when there is more to say), starts, or ends. */
#define option(task, set) want != RESUME && has(set, task)
#define SUSPEND(task, parent) \
     :: option(task, able) && suspensions > 0 && has(of(SUSPEND_AFTER, task), parent) -> \
        suspensions--; outcome(me, task) = SUSPENDED + parent
#define PROGRESS(task) \
  if :: want == RESUME || !has(able | buffered[me], task) -> skip \
     :: option(task, able | buffered[me]) && more_to_say(task) -> skip \
     :: option(task, able & buffered[me]) && more_to_say(task) -> cut(buffered[me], task); put(running[me], task) \
     :: option(task, buffered[me]) && mayStart(task) -> cut(buffered[me], task); put(awaiting[me], task) \
     :: option(task, able) -> outcome(me, task) = SUCCESS \
     :: option(task, able) && retries > 0 -> retries--; outcome(me, task) = RETRY \
     :: option(task, able) && failures > 0 -> failures--; outcome(me, task) = FAILED \
     :: option(task, able & GROUP) && groupFailures > 0 -> groupFailures--; outcome(me, task) = FAILED_GROUP \
     :: option(task, able) && fenced[me] -> outcome(me, task) = RELEASED \
     :: option(task, able | buffered[me]) && releases > 0 -> releases--; outcome(me, task) = RELEASED \
     SUSPEND(task, 0) \
     SUSPEND(task, 1) \
     SUSPEND(task, 2) \
  fi; \
  if :: outcome(me, task) && !has(sent[me], task) -> \
        cut(running[me], task); cut(buffered[me], task); put(sent[me], task) \
     :: else \
  fi
#define mayCall (reachable && (fenced[me] == 2 || able_or_may_start(0) || more_to_say(0)))
active [NODES] proctype Node() {
  do
  :: atomic {
       (me == 0 && late.session) || mayCall ->
       if
       :: me == 0 && late.session -> how = LATE
       :: mayCall ->
          if :: fenced[me] == 2 -> want = RESUME :: else fi;
          PROGRESS(0);
          PROGRESS(1);
#if TASKS > 2
          PROGRESS(2);
#endif
          if :: want == RESUME -> skip
             :: want != RESUME && !fenced[me] && (mayClaim || mustSpeak) -> want = ANY
             :: want != RESUME && !fenced[me] && (mayClaim || sent[me]) -> want = ONE
             :: want != RESUME && (mustSpeak || mustBeat) -> want = NOTHING
          fi;
          if :: SUSPICION || want == RESUME -> renew = 1
             :: want != RESUME && (mustSpeak || (mayClaim && claiming(want))) -> renew = 0
          fi;
          if :: how = ANSWERED
             :: losses > 0 -> losses--; how = REQUEST_LOST
             :: losses > 0 -> losses--; how = REPLY_LOST
             :: lates > 0 && !late.session -> lates--; how = ANSWERED_AND_LATE
             :: lates > 0 && !late.session -> lates--; how = ONLY_LATE
             :: crashes > 0 && lates > 0 && !late.session -> crashes--; lates--; how = CRASHED_AND_LATE
          fi
       fi;
       d_step {
         if :: how == LATE -> takeLate() :: else -> compose(me) fi;
         if :: how >= ANSWERED_AND_LATE && how != LATE -> keepLate() :: else fi;
         if :: how == REQUEST_LOST || how == ONLY_LATE || how == CRASHED_AND_LATE -> skip :: else -> work() fi;
         if :: how == ANSWERED || how == ANSWERED_AND_LATE -> answer(me)
            :: how == CRASHED_AND_LATE -> crash(me)
            :: how == LATE -> skip
            :: else -> if :: fenced[me] == 2 -> fenced[me] = 1 :: else fi
         fi;
         want = 0; renew = 0; how = 0;
         conclude()
       } }
  :: d_step { up[me] == UP && reply[me].status -> hear(me); check() }
  :: atomic {
       if :: up[me] == UP && (started_by(me) & KILLER) -> kills++; step = CRASH
          :: up[me] == UP && sid[me] && crashes > 0 -> crashes--; step = CRASH
          :: up[me] == UP && sid[me] && ends > 0 -> ends--; step = LEAVE
          :: up[me] == UP && sid[me] && pauses > 0 -> pauses--; step = PAUSE
          :: up[me] == PAUSED -> step = WAKE
          :: up[me] == UP && sid[me] && fences > 0 && !fenced[me] -> fences--; step = FENCE
       fi;
       d_step {
         /* A task that kills its process is found: at most one of its runs is not counted. */
         must(killer_is_found, kills <= MAX_RECLAIMS + 2);
         if :: step == CRASH -> crash(me)
            :: step == LEAVE -> if :: !over(sid[me]) -> close(sid[me], ENDED) :: else fi; crash(me)
            :: step == PAUSE -> up[me] = PAUSED
            :: step == WAKE -> up[me] = UP
            :: step == FENCE -> fenced[me] = 1
         fi;
         step = 0
       } }
  od
}
#undef me

/* The flags of the group, and the end of all that is optional. */
active proctype World() {
end:
  do
  :: d_step { groupCancels > 0 && !groupCancelled -> groupCancels--; groupCancelled = 1; flagged = 1 }
  :: d_step { groupPauses > 0 && !groupPaused -> groupPauses--; groupPaused = 1 }
  :: d_step { groupPaused -> groupPaused = 0 }
  :: d_step { (crashes | pauses | lapses | losses | lates | fences | retries | releases | failures | groupFailures
               | suspensions | timeouts | ends | cancels | revokes | revivals | groupCancels | groupPauses) ->
       crashes = 0; pauses = 0; lapses = 0; losses = 0; lates = 0; fences = 0;
       retries = 0; releases = 0; failures = 0; groupFailures = 0; suspensions = 0; timeouts = 0; ends = 0;
       cancels = 0; revokes = 0; revivals = 0; groupCancels = 0; groupPauses = 0 }
  /* Nothing else can happen. */
  :: timeout -> must(all_tasks_end, (known | refused) == ALL && done == known); break
  od
}
