"""This machine in, figures out: Clearhead beside its peers in the same run, and its own growth with size.

Contestants live in processes of their own (`seat.py`) and take turns, so that whatever else the machine does meets all
of them alike, and each one's peak of memory is its own.
"""
