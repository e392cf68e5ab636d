"""The engine: decides what happens next in a run, and commits the decision.

Load
    ``runs.RunEngine`` reads a run's events and folds them into a state (``fold``), from the last
    ``snapshot`` on if there is one. ``cached_run.CachedRun`` is the run in memory: state, graph,
    and the event values read so far. Workers keep runs in a ``RunCache``.

Decide
    A trigger (``model.trigger``) is the end of a job, a wait or a child run, or a command. From
    it, the graph and the state, ``decide`` makes a ``Decision``: events, and the jobs, waits and
    child runs to write with them. One ``Decider`` collects it, and reads through a ``RunView``.
    ``completion`` ends nodes and runs; ``external_waits``, ``approvals`` and ``run_commands``
    handle pauses, approvals and commands; ``readiness`` counts edges from scratch. Effects
    collect on the decider until the event that causes them is emitted, and are stored in it. So
    folding a log needs no graph, no code and no rules.

Commit
    ``plan.Plan`` turns decisions about one run into one ``RunCommit``. It leaves the cached run
    alone until it is written, so ``RunEngine.plan`` can start over when a decision raises
    ``ValueMissing``: it reads the values and decides again. The store accepts a commit only if the
    run has exactly the events that the decision was based on. After a conflict the engine reads
    the new events and decides again.

Fold
    Once written, the state after the plan's events is the state of the cached run. Every later
    reader of the log folds the same events to the same state.

Schedules: ``schedule`` decides the next step of a schedule, ``ticks`` performs it. ``migration``
lists what prevents a run from continuing in another version of its flow. ``failures`` describes
exceptions, and ``retry`` decides what follows a failed attempt.

Everything here is pure except ``runs`` and ``ticks``, which read and write a store. Workers and
clients both use the engine.
"""
