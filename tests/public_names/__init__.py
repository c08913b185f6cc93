"""PyFlink's public names and what flinkish has of them.

``pyflink_2_3.txt`` lists PyFlink's names; ``notes.toml`` says of some of them how flinkish differs. From both, and from
the package itself, ``python -m tests.public_names`` writes ``docs/api.md``. ``tests/unit/test_public_names.py`` fails
while that page is not what the command would write.
"""
