"""The engine: what follows when something happens to a run, and how that is written.

Load
    ``runs.RunEngine`` reads a run's events and folds them into a state (``fold``), from the last
    ``snapshot`` on if there is one. ``cached_run.CachedRun`` is the run in memory: state, graph,
    and those values of its events that have been read. Workers keep runs in a ``RunCache``.

Decide
    A trigger (``model.trigger``) is the end of a job, a wait or a child run, or a command. From
    it, the graph and the state, ``decide`` makes a ``Decision``: events, and the jobs, waits and
    child runs to be written with them. One ``Decider`` collects it, and reads through a
    ``RunView``. How nodes and runs end is in ``completion``; what is special to pauses, approvals
    and commands in ``external_waits``, ``approvals`` and ``run_commands``; edges are counted from
    scratch in ``readiness``. Effects gather on the decider until the event that causes them is
    emitted, and are stored in it. So folding a log needs no graph, no code and no rules.

Commit
    ``plan.Plan`` turns decisions about one run into one ``RunCommit``. It leaves the cached run
    alone until it is written, so ``RunEngine.plan`` can start over when a decision raises
    ``ValueMissing``: it reads the values and decides again. The store accepts a commit only if the
    run has no other events than those that were decided upon; after a conflict the new events are
    read, and the trigger is decided about again.

Fold
    Once written, the state after the plan's events is the state of the cached run. Whoever reads
    the log later folds the same events to the same state.

Schedules: ``schedule`` says what a schedule does next, ``ticks`` does it. ``migration`` says what
keeps a run from another version of its flow, ``failures`` what follows a failed attempt.

Everything here is pure but ``runs`` and ``ticks``, which read and write a store. Workers and
clients use the engine alike.
"""
