"""The worker: claims jobs, runs their bodies, commits the outcomes.

The protocol, from claim to commit (``runner.py`` holds the story together):

1. **Claim** (``claims``). While there is room and may be work, claim jobs from the partitions that
   have work for this worker. Each claim raises the job's epoch, which fences all that this
   worker writes about it, and starts a lease.
2. **Run** (``attempt``, ``executors``, ``call``, ``outcome``). An attempt takes a slot and runs the
   body once: on the event loop, in a thread or in a child process. The first end counts, whether
   the body returns, raises or is stopped.
3. **Commit** (``commits``). Outcomes are written in groups, each under its own fence. The outcome
   of a node is decided first (``engine``), and committed with all that follows from it. If the
   next node can run here, the same job continues in place, under the same claim and in the same
   slot: ``runner.ended``, ``runner.may_continue`` and ``runner.settled`` are the three calls of one
   step.
4. **Renew** (``lease_renewal``). A separate thread renews the leases of all held jobs. A job is
   held from its claim until its outcome is stored.
5. **Stop** (``service``). Claim nothing more, requeue what has not started, let bodies finish
   within the grace period, requeue the rest, flush the commits, sign off.

What happens on each failure:

- *The body raises, or runs into its timeout*: the attempt is retried or fails, as the policy says.
- *The job is aborted*: its signal fires; after a grace period the body is cancelled or abandoned.
- *The claim is lost* (the lease expired and another worker took the job over): the body is stopped,
  and nothing is written; a late write is refused by the fence.
- *Another writer got in between*: the commit conflicts, the run is caught up, the outcome is
  decided again.
- *The store does not answer*: claims, polls and commits are retried; jobs stay held meanwhile. A
  claim without an answer may have taken jobs: they are requeued before the next claim. After an
  outage nothing is taken over until every worker had time to renew (``poller``).
- *The store refuses an outcome*: it is written alone, without its progress, then as a failure.
- *A worker crashes*: its leases expire, and the leading worker requeues its jobs (``janitor``). A
  job that crashed too many workers is dead-lettered.
- *A body never ends*: a thread is abandoned and costs only itself; a child process is killed.
"""
