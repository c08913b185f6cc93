"""The time-to-live of state: the configuration that users build (Flink's ``StateTtlConfig``).

Expiry goes by processing time, which is the timestamp of the epoch: state that expires in an epoch expires in it again
when the epoch is replayed. All cleanup strategies are accepted; they decide only whether expired state that is not
accessed is purged (when the state of its subtask is written, or, in files, when these are compacted) or stays until its
next access.
"""

from __future__ import annotations

from enum import Enum

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.errors import ArgumentValueError


class StateTtlConfig:
    """The time-to-live of a state, which a builder creates.

    Example::

        ttl = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
        descriptor.enable_time_to_live(ttl)
    """

    class UpdateType(Enum):
        """The kinds of access that renew the time-to-live of state."""

        #: no time-to-live at all
        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether expired state that is still there can be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The time domain in which the time-to-live is measured."""

        ProcessingTime = 0

    class CleanupStrategies:
        """The strategies for expired state that is not accessed."""

        class Strategies(Enum):
            """The kinds of cleanup strategies."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """Base of all cleanup strategies."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without parameters."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Checks ``cleanup_size`` entries at each access to state."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                """The number of entries that are checked at each access."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Whether records that do not access state trigger a cleanup as well."""
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Drops expired entries during compaction."""

            def __init__(
                self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

            def get_query_time_after_num_entries(self) -> int:
                """The number of entries after which the current time is queried again."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                """The age at which a file is compacted: 30 days unless another time was given."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
            self._strategies = strategies
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            """Whether expired state is purged in the background, without being accessed."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Whether expired state is left out of snapshots."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy | None:
            """The incremental strategy; with cleanup in the background it defaults to 5 entries, and not for every
            record."""
            default = self.IncrementalCleanupStrategy(5, False) if self._is_cleanup_in_background else None
            strategy = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)
            return strategy if isinstance(strategy, self.IncrementalCleanupStrategy) else None

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy | None:
            """The strategy of compaction filters; with cleanup in the background it defaults to 1000 entries."""
            default = self.RocksdbCompactFilterCleanupStrategy(1000) if self._is_cleanup_in_background else None
            strategy = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)
            return strategy if isinstance(strategy, self.RocksdbCompactFilterCleanupStrategy) else None

    class Builder:
        """Collects the settings. By default writes renew the time-to-live, and expired state is never returned."""

        def __init__(self, ttl: Time | Duration) -> None:
            self._ttl = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set which accesses renew the time-to-live; ``Disabled`` switches it off."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Renew the time-to-live at each write."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Renew the time-to-live at each read and write."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfig.Builder:
            """Set whether expired state that is still there can be read."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Let expired state be read until it is cleaned up (which the first read does)."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Let no expired state be read."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the time domain in which the time-to-live is measured."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Measure the time-to-live in processing time, the only time domain there is."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired state out of snapshots."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Check ``cleanup_size`` entries for expiry at each access, or also for each record."""
            strategies = StateTtlConfig.CleanupStrategies
            strategy = strategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = strategy
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
        ) -> StateTtlConfig.Builder:
            """Clean up while the state backend compacts its files."""
            strategies = StateTtlConfig.CleanupStrategies
            strategy = strategies.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = strategy
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Clean up only state that is accessed, unless a strategy was named."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration) -> StateTtlConfig.Builder:
            """Set the time to live."""
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Create the configuration.

            Raises:
                ValueError: the time to live is not positive.
            """
            strategies = StateTtlConfig.CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background)
            return StateTtlConfig(
                self._update_type, self._state_visibility, self._ttl_time_characteristic, self._ttl, strategies
            )

    def __init__(
        self,
        update_type: StateTtlConfig.UpdateType,
        state_visibility: StateTtlConfig.StateVisibility,
        ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic,
        ttl: Time | Duration,
        cleanup_strategies: StateTtlConfig.CleanupStrategies,
    ) -> None:
        ttl = Time(milliseconds_of(ttl, "the time to live", "StateTtlConfig"))
        if ttl.to_milliseconds() <= 0:
            raise ArgumentValueError(
                f"TTL is expected to be positive, got {ttl}",
                where="StateTtlConfig",
                expected="a time of more than 0 ms",
                hint="leave out enable_time_to_live() for state that is kept",
            )
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time | Duration) -> StateTtlConfig.Builder:
        """A builder of configurations with this time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> StateTtlConfig.UpdateType:
        """The accesses that renew the time-to-live."""
        return self._update_type

    def get_state_visibility(self) -> StateTtlConfig.StateVisibility:
        """Whether expired state that is still there can be read."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """The time to live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> StateTtlConfig.TtlTimeCharacteristic:
        """The time domain in which the time-to-live is measured."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether state expires at all."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        """The strategies for expired state that is not accessed."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return f"StateTtlConfig({self._ttl}, {self._update_type.name}, {self._state_visibility.name})"
