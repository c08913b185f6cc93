"""Alerts for accounts that spend too much in a short time, by rules that change while the job runs.

    ./spark-submit.sh jobs/fraud_alerts.py            # generated transactions and rules; no server needed

The rules are a broadcast stream: every subtask has all of them. A transaction is checked when the watermark has reached
its time, so the rules valid at that time apply, in whatever order the records arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flinkish.common import Row, Types
from flinkish.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.connectors import Sink
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor
from flinkish.examples.options import parse, run_sql, text_table
from flinkish.examples.transactions import (
    ACCOUNT,
    ACTIVE,
    AMOUNT,
    MOST,
    RULE_NAME,
    RULE_TS,
    TS,
    WITHIN_MS,
    generated_rules,
    generated_transactions,
    rule_watermarks,
    transaction_watermarks,
)

CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS alerts (account TEXT NOT NULL, rule TEXT NOT NULL, ts BIGINT NOT NULL, "
    "total DOUBLE PRECISION NOT NULL, PRIMARY KEY (account, rule, ts))"
)
#: account, rule, time of the transaction, amount that the account spent within the rule's period
ALERT = Types.ROW_NAMED(
    ["account", "rule", "ts", "total"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.DOUBLE()]
)

#: name of a rule -> its versions: (start of validity, period in ms, maximum amount, whether it is active)
RULES = MapStateDescriptor(
    "rules",
    Types.STRING(),
    Types.LIST(Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN()])),
)
#: How long amounts of an account are kept at most, even if a rule has a longer period.
LONGEST_MS = 3_600_000


class FraudAlerts(KeyedBroadcastProcessFunction[str, Row, Row, Row]):
    """Keeps per account the amounts of the last hour and those that the watermark has not reached yet."""

    def open(self, runtime_context: RuntimeContext) -> None:
        amounts = Types.LIST(Types.DOUBLE())
        self._waiting = runtime_context.get_map_state(MapStateDescriptor("waiting", Types.LONG(), amounts))
        spent = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self._spent = runtime_context.get_list_state(ListStateDescriptor("spent", spent))

    def process_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        ts = value[TS]
        self._waiting.put(ts, [*(self._waiting.get(ts) or ()), value[AMOUNT]])
        ctx.timer_service().register_event_time_timer(ts)

    def process_broadcast_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        version = value[RULE_TS], value[WITHIN_MS], value[MOST], value[ACTIVE]
        rules.put(value[RULE_NAME], [*(rules.get(value[RULE_NAME]) or ()), version])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Row]:
        spent = [(ts, amount) for ts, amount in self._spent.get() if ts > timestamp - LONGEST_MS]
        spent.append((timestamp, sum(self._waiting.get(timestamp) or ())))
        self._waiting.remove(timestamp)
        self._spent.update(spent)
        for name, versions in ctx.get_broadcast_state(RULES).items():
            within_ms, most, active = _version_at(timestamp, versions)
            total = round(sum(amount for ts, amount in spent if ts > timestamp - within_ms), 2)
            if active and total > most:
                yield Row(ctx.get_current_key(), name, timestamp, total)


def _version_at(ts: int, versions: Any) -> tuple[int, float, bool]:
    """The version of a rule that is valid at a time: the last one that began before it."""
    begun = [version for version in versions if version[0] <= ts]
    return begun[-1][1:] if begun else (0, 0.0, False)


def build(transactions: DataStream, rules: DataStream, alerts: Sink) -> None:
    """The pipeline: transactions and rule changes (`flinkish.examples.transactions`) -> ALERT -> ``alerts``."""
    (
        transactions.key_by(lambda transaction: transaction[ACCOUNT], Types.STRING())
        .connect(rules.broadcast(RULES))
        .process(FraudAlerts(), output_type=ALERT)
        .uid("fraud-alerts")
        .sink_to(alerts)
        .uid("alerts")
    )


def alerts_sink(database: JdbcConnectionOptions) -> JdbcSink:
    """Writes one row per alert."""
    return JdbcSink.upsert("alerts", ["account", "rule", "ts"], ALERT, database)


def show(database: JdbcConnectionOptions) -> None:
    """Print the accounts with the most alerts, and totals."""
    top = run_sql(
        database,
        "SELECT account, rule, COUNT(*), MAX(total) FROM alerts GROUP BY account, rule "
        "ORDER BY COUNT(*) DESC, account, rule LIMIT 10",
    )
    ((alerts, accounts),) = run_sql(database, "SELECT COUNT(*), COUNT(DISTINCT account) FROM alerts")
    print(text_table(["account", "rule", "alerts", "most spent"], top))
    print(f"{alerts:,} alerts for {accounts:,} accounts, in the table alerts of {database.url}")


def main() -> None:
    """Run the job and show its results."""
    options = parse(
        "fraud-alerts", "Alerts for accounts that spend too much too fast.", generator=generated_transactions
    )
    run_sql(options.database, CREATE_TABLE)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    transactions = env.from_source(options.source, transaction_watermarks(), "transactions").uid("transactions")
    rules = env.from_source(generated_rules(options.events), rule_watermarks(), "rules").uid("rules")
    build(transactions, rules, alerts_sink(options.database))
    env.execute("fraud-alerts")
    show(options.database)


if __name__ == "__main__":
    main()
