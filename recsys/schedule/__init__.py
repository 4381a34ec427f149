"""The engine that orders the work of a training step.

*Where* gradients stop is part of the model: it is written in a :class:`~recsys.schedule.graph.PartGraph`.
*When and on which stream* a part's forward, backward and update run is the schedule: a
:class:`~recsys.schedule.program.Program`, plain data made by a pure function, which an executor runs.
Every program of one graph gives the same gradients. Nothing here knows about recommenders.
"""
