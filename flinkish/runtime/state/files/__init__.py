"""Keyed state and timers of ONE subtask in immutable Arrow IPC files: a small LSM tree.

Importing this package imports nothing. Most of its modules import numpy and pyarrow; ``references`` does not.

Keyed state::

    directory = StateDirectory("<job dir>/state/<vertex>/<subtask>", cache_path="<local folder, for object stores>")
    files = StateFiles(directory, same_id, same_entry)   # whether the values of two different encodings are equal
    held = FileSet()                                     # FileSet.decode(value.encode()): plain data, in GroupState

    rows = RowsBuilder()                                 # the net changes of an epoch, state by state
    hashes = group_hashes(state, namespace, keys)        # or group_hashes_in(state, namespaces, keys)
    rows.put(state, hashes, ids, values, times=...)                          # value, reducing, aggregating state
    rows.put(state, hashes, ids, values, entries=..., entry_hashes=entry_hashes(user_keys), orders=...)    # map state
    rows.put(state, hashes, ids, chunks, entry_hashes=places, orders=places)  # list state: chunk after chunk
    rows.delete(state, hashes, ids, entries=..., entry_hashes=...)
    rows.clear(state, hashes, ids)                       # older than what the same builder puts into the group
    held = files.add(held, rows.build(), epoch)
    held = files.compact(held, epoch, expiry=Expiry(now_ms, {state: ttl_ms}))

    files.lookup(held, state, hashes, ids).values                            # newest value or None, in order
    files.lookup(held, state, hashes, ids, entries, entry_hashes)            # single entries of maps
    files.groups(held, state, hashes, ids)                                   # [Group(entries, values, orders, times)]
    files.group_batches(held, state, hash_, id)                              # one large group, piece by piece
    files.scan(held)                                                         # everything, as Rows in hash order

Timers, in a directory of their own or in the same one::

    timers = TimerFiles(directory, same_id)
    sets = TimerSets({})                                 # TimerSets.decode(value.encode())
    queue = ("user-timers", "event-time")                # service and time domain, with files of their own
    changes = TimerChanges()                             # the net change of each timer in an epoch: one of these three
    changes.register(timestamps_ms, hashes, ids, sequences)        # there now; one that was there keeps its place
    changes.register_again(timestamps_ms, hashes, ids, sequences)  # deleted, then registered
    changes.delete(timestamps_ms, hashes, ids)
    sets = timers.add(sets, {queue: changes}, epoch)
    sets = timers.compact(sets, {queue: fired_ms}, epoch)
    timers.earliest(sets, queue, fired_ms)               # timers at or before fired_ms do not count
    timers.at(sets, queue, timestamp_ms)                 # ids in the order of firing, in batches
    timers.contains(sets, queue, fired_ms, timestamps_ms, hashes, ids)
    timers.scan(sets, queue, fired_ms)

Timers in files with timestamps at or before ``fired_ms`` do not count: a caller that registers one keeps it elsewhere.

``id`` is the encoded (namespace, key), ``entry`` the encoded user key. A row with a time may have expired and still be
found: the caller checks ``times``. All hashes are arrays of ``numpy.uint64``.

Files: ``FileSet.names`` are the files that are referred to, and ``set(old.names) - set(new.names)`` those that an epoch
has dropped. ``references.deletable`` says which may be deleted, and ``StateDirectory.delete`` deletes them (with their
mappings and local copies). ``StateDirectory.fetch`` copies a file to the local disk ahead of its use.

Errors: `MissingFileError` (a file is missing) and `CorruptStateError` (a file is not what was written), both with
``.file``; `IncompatibleJobError` for files of another version of flinkish.

Modules: ``rows`` as columns and the format of their files, ``directory`` (writing, mapping, checking, fetching),
``references`` to files and which may be deleted, ``merge`` (which rows count; runs and ranges of runs), ``lookup``,
``compaction`` with the interface to all of these for keyed state, and ``timer_files``. The hashes of groups and entries
are in ``runtime/exchange/hashes.py``.
"""
