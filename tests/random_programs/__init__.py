"""Random programs, each run by flinkish and by a model in plain Python that takes one record at a time.

    python -m tests.random_programs --seed 1 --programs 200            in this process
    python -m tests.random_programs --seed 1 --programs 20 --spark     in a local Spark session
    python -m tests.random_programs --seed 1 --first 17 --programs 1   one program again
    python -m tests.random_programs --file program.py                  a program that was printed, perhaps edited

A program is a text in flinkish's API. It is executed twice: once with flinkish's names, once with the model's, which
has the same names and shares no code with flinkish. `kinds` has a row for each kind of operator and of function.
"""
