"""The worker: claims jobs, runs their bodies, commits the outcomes.

The protocol, from claim to commit (``runner.py`` is where to start reading):

1. **Claim** (``claims``). While there is room and may be work, claim jobs from the partitions that
   have work for this worker. Each claim increments the job's epoch, which fences everything
   that this worker writes about it, and starts a lease.
2. **Run** (``attempt``, ``executors``, ``call``, ``outcome``). An attempt takes a slot and runs the
   body once: on the event loop, in a thread or in a child process. The first end counts, whether
   the body returns, raises or is stopped. Bodies get what the worker opened, and what it builds for
   their job (``resources``).
3. **Commit** (``commits``). Outcomes are written in groups, each under its own fence. For the
   outcome of a node, the engine decides first; the decision is committed with the outcome. If the
   next node can run here, the same job continues in place, under the same claim and in the same
   slot: ``runner.ended``, ``runner.may_continue`` and ``runner.settled`` are the three calls of one
   step.
4. **Renew** (``lease_renewal``). A separate thread renews the leases of all held jobs. A job is
   held from its claim until its outcome is stored.
5. **Stop** (``service``). Claim nothing more, requeue what has not started, let bodies finish
   within the grace period, requeue the rest, flush the commits, sign off.

What happens on each failure:

- *The body raises or times out*: the attempt is retried or fails, depending on the policy.
- *The job is aborted*: its signal fires; after a grace period the body is cancelled or abandoned.
- *The claim is lost* (the lease expired and another worker took the job over): the body is stopped,
  and nothing is written; a late write is refused by the fence.
- *Another worker wrote to the run first*: the commit conflicts, the new events are read, and the
  outcome is decided again.
- *The store does not respond*: claims, polls and commits are retried; jobs stay held meanwhile. A
  claim without an answer may have taken jobs: they are requeued before the next claim. After an
  outage no job is taken over until every worker had time to renew (``poller``).
- *The store refuses an outcome*: it is written alone, without its progress, then as a failure.
- *A worker crashes*: its leases expire, and the leading worker requeues its jobs (``janitor``). A
  job that crashed too many workers is dead-lettered. A worker that starts again under its own id
  takes over at once what it had claimed.
- *Another worker starts with the same id*: this one loses its claims and stops.
- *A body exits or forks* (``isolation``): an exit fails its attempt, and a forked process ends
  alone. If it sends its worker a signal to stop, what that interrupts is left to a takeover, and
  counts a crash.
- *A body never ends*: a child process is killed. A thread is abandoned, without occupying a slot;
  but if its job would run again, a worker that owns its process stops and ends it first.
"""
