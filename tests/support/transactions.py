"""What the job of fraud alerts must give, computed from the input in plain Python."""

from __future__ import annotations

from flinkish.examples.transactions import number_of_rules, rules_of, transactions_of

Alert = tuple[str, str, int, float]


def expected_alerts(transactions: int, accounts: int) -> list[Alert]:
    """(account, rule, time, total), sorted."""
    spent: dict[str, dict[int, float]] = {}
    for account, amount, ts in transactions_of(range(transactions), accounts):
        times = spent.setdefault(account, {})
        times[ts] = times.get(ts, 0) + amount
    changes = rules_of(range(number_of_rules(transactions)))
    alerts = []
    for account, times in spent.items():
        in_order = sorted(times.items())
        for place, (ts, _) in enumerate(in_order):
            # the last change of each rule that is not later
            for name, within_ms, most, active, _ in {r[0]: r for r in changes if r[4] <= ts}.values():
                total = round(sum(amount for at, amount in in_order[: place + 1] if at > ts - within_ms), 2)
                if active and total > most:
                    alerts.append((account, name, ts, total))
    return sorted(alerts)
