"""A small payment and then a large one within a minute is an alert; a timer says when an account was quiet again."""

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor

PAYMENT = Types.ROW_NAMED(["account", "amount", "seconds"], [Types.INT(), Types.DOUBLE(), Types.LONG()])
PAYMENTS = [
    Row(1, 13.0, 1),
    Row(2, 0.5, 2),
    Row(1, 0.09, 5),
    Row(2, 700.0, 80),
    Row(1, 510.0, 30),
    Row(3, 0.2, 90),
    Row(3, 800.0, 91),
    Row(3, 900.0, 92),
]


class PaymentTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value.seconds * 1000


class FraudDetector(KeyedProcessFunction):
    SMALL, LARGE, MINUTE_MS = 1.0, 500.0, 60_000

    def open(self, runtime_context: RuntimeContext):
        self.small_at = runtime_context.get_state(ValueStateDescriptor("small-at", Types.LONG()))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", Types.LONG()))

    def process_element(self, payment, ctx: "KeyedProcessFunction.Context"):
        small_at = self.small_at.value()
        if small_at is not None:
            if payment.amount > self.LARGE and ctx.timestamp() - small_at <= self.MINUTE_MS:
                yield f"alert for {ctx.get_current_key()}: {payment.amount}"
            self.small_at.clear()
        if payment.amount < self.SMALL:
            self.small_at.update(ctx.timestamp())
        old, new = self.timer.value(), ctx.timestamp() + self.MINUTE_MS
        if old is not None:
            ctx.timer_service().delete_event_time_timer(old)
        ctx.timer_service().register_event_time_timer(new)
        self.timer.update(new)

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        self.timer.clear()
        yield f"{ctx.get_current_key()} is quiet at {timestamp}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(PaymentTime())
    payments = env.from_collection(PAYMENTS, type_info=PAYMENT).assign_timestamps_and_watermarks(strategy)
    payments.key_by(lambda payment: payment.account).process(FraudDetector(), Types.STRING()).print()
    env.execute("fraud detection")
