import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The programs of keyed_programs.py, and the running sum, in Java: what flink_java_job.py runs and describes.
 *
 * <p>Arguments: the pipeline, a multiple of the largest number of events of a file, the bound for out-of-order events
 * in milliseconds, then the files. A click is (user, time, amount, logged in).
 *
 * <p>Prints a line of JSON for each mark, and one for the figures that must agree with those of other engines.
 */
public final class FlinkJob {
    private static final int PARALLELISM = 2;
    private static final int SLICE_EVENTS = 5_000;
    private static final int BYTES = 4 + 8 + 8 + 1;
    private static final long WINDOW_MS = 60_000;
    private static final long VISIT_GAP_MS = 600_000;

    /** The sums of the results in each subtask's dictionary, added up when the subtasks close. */
    private static final Map<String, Double> CHECK = new HashMap<>();

    private FlinkJob() {}

    public static void main(String[] arguments) throws Exception {
        String pipeline = arguments[0];
        int eventsPerFile = Integer.parseInt(arguments[1]);
        long boundMs = Long.parseLong(arguments[2]);
        List<String> files = Arrays.asList(arguments).subList(3, arguments.length);
        int few = Math.min(2, files.size());
        int third = Math.max(few, files.size() / 3);
        long events = 0;
        run(pipeline, boundMs, files.subList(0, few), eventsPerFile);
        mark(events);
        for (int count : new int[] {third, files.size()}) {
            run(pipeline, boundMs, files.subList(0, count), eventsPerFile);
            events += (long) count * eventsPerFile;
            mark(events);
        }
        StringBuilder figures = new StringBuilder();
        CHECK.forEach((name, figure) -> figures.append(figures.length() == 0 ? "" : ", ")
                .append('"').append(name).append("\": ").append(figure));
        System.out.println("{" + figures + "}");
    }

    /** Prints a mark, with this many events processed since the first one. */
    private static void mark(long events) {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        System.out.printf("{\"wall_s\": %f, \"cpu_s\": %f, \"events\": %d}%n", System.nanoTime() / 1e9,
                system.getProcessCpuTime() / 1e9, events);
    }

    private static void run(String pipeline, long boundMs, List<String> files, int eventsPerFile) throws Exception {
        CHECK.clear();
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, new Configuration());
        env.getConfig().enableObjectReuse();
        int slices = files.size() * (eventsPerFile / SLICE_EVENTS);
        DataStream<Tuple4<String, Long, Double, Boolean>> clicks = env.fromSequence(0, slices - 1)
                .flatMap(new ReadSlice(files, eventsPerFile))
                .returns(Types.TUPLE(Types.STRING, Types.LONG, Types.DOUBLE, Types.BOOLEAN));
        if (pipeline.equals("sum")) {
            clicks.filter(click -> click.f3)
                    .map(click -> Tuple2.of(click.f0, 1L))
                    .returns(Types.TUPLE(Types.STRING, Types.LONG))
                    .keyBy(pair -> pair.f0)
                    .reduce((left, right) -> Tuple2.of(left.f0, left.f1 + right.f1))
                    .filter(new LastSums())
                    .sinkTo(new DiscardingSink<>());
        } else {
            var strategy = WatermarkStrategy
                    .<Tuple4<String, Long, Double, Boolean>>forBoundedOutOfOrderness(Duration.ofMillis(boundMs))
                    .withTimestampAssigner((click, before) -> click.f1);
            KeyedStream<Tuple4<String, Long, Double, Boolean>, String> keyed =
                    clicks.assignTimestampsAndWatermarks(strategy).keyBy(click -> click.f0);
            DataStream<Tuple4<String, Long, Long, Double>> results = pipeline.equals("visits")
                    ? keyed.process(new Visits())
                    : keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis(WINDOW_MS)))
                            .aggregate(new CountAndAmount(), new WithWindow());
            results.filter(new LastResults(pipeline.equals("visits"))).sinkTo(new DiscardingSink<>());
        }
        env.execute(pipeline);
    }

    /** Number of a slice to its clicks. A subtask gets every second slice, as in pyflink_job.py. */
    private static final class ReadSlice extends RichFlatMapFunction<Long, Tuple4<String, Long, Double, Boolean>> {
        private final List<String> files;
        private final int eventsPerFile;
        private final Map<Integer, String> names = new HashMap<>();
        private transient String path;
        private transient ByteBuffer content;

        ReadSlice(List<String> files, int eventsPerFile) {
            this.files = new ArrayList<>(files);
            this.eventsPerFile = eventsPerFile;
        }

        @Override
        public void flatMap(Long number, Collector<Tuple4<String, Long, Double, Boolean>> out) throws IOException {
            int half = (files.size() * (eventsPerFile / SLICE_EVENTS) + 1) / 2;
            int slice = (int) (number < half ? 2 * number : 2 * (number - half) + 1);
            int begin = slice * SLICE_EVENTS;
            String wanted = files.get(begin / eventsPerFile);
            if (!wanted.equals(path)) {
                path = wanted;
                content = ByteBuffer.wrap(Files.readAllBytes(Path.of(path)));
            }
            content.position(begin % eventsPerFile * BYTES);
            for (int i = 0; i < SLICE_EVENTS; i++) {
                String user = names.computeIfAbsent(content.getInt(), code -> "u" + code);
                out.collect(Tuple4.of(user, content.getLong(), content.getDouble(), content.get() != 0));
            }
        }
    }

    /** Count and sum of amounts. */
    private static final class CountAndAmount implements
            AggregateFunction<Tuple4<String, Long, Double, Boolean>, Tuple2<Long, Double>, Tuple2<Long, Double>> {
        @Override
        public Tuple2<Long, Double> createAccumulator() {
            return Tuple2.of(0L, 0.0);
        }

        @Override
        public Tuple2<Long, Double> add(Tuple4<String, Long, Double, Boolean> click, Tuple2<Long, Double> sums) {
            return Tuple2.of(sums.f0 + 1, sums.f1 + click.f2);
        }

        @Override
        public Tuple2<Long, Double> getResult(Tuple2<Long, Double> sums) {
            return sums;
        }

        @Override
        public Tuple2<Long, Double> merge(Tuple2<Long, Double> left, Tuple2<Long, Double> right) {
            return Tuple2.of(left.f0 + right.f0, left.f1 + right.f1);
        }
    }

    /** Adds the key and the start of the window. */
    private static final class WithWindow extends
            ProcessWindowFunction<Tuple2<Long, Double>, Tuple4<String, Long, Long, Double>, String, TimeWindow> {
        @Override
        public void process(String key, Context context, Iterable<Tuple2<Long, Double>> elements,
                Collector<Tuple4<String, Long, Long, Double>> out) {
            for (Tuple2<Long, Double> sums : elements) {
                out.collect(Tuple4.of(key, context.window().getStart(), sums.f0, sums.f1));
            }
        }
    }

    /** The clicks of a user until there are none for ten minutes, with a timer for every click. */
    private static final class Visits extends
            KeyedProcessFunction<String, Tuple4<String, Long, Double, Boolean>, Tuple4<String, Long, Long, Double>> {
        private transient ValueState<Tuple2<Long, Long>> visit;

        @Override
        public void open(OpenContext context) {
            TypeInformation<Tuple2<Long, Long>> type = TypeInformation.of(new TypeHint<Tuple2<Long, Long>>() {});
            visit = getRuntimeContext().getState(new ValueStateDescriptor<>("visit", type));
        }

        @Override
        public void processElement(Tuple4<String, Long, Double, Boolean> click, Context context,
                Collector<Tuple4<String, Long, Long, Double>> out) throws IOException {
            Tuple2<Long, Long> before = visit.value();
            long atMs = context.timestamp();
            visit.update(before == null
                    ? Tuple2.of(atMs, 1L) : Tuple2.of(Math.max(atMs, before.f0), before.f1 + 1));
            context.timerService().registerEventTimeTimer(atMs + VISIT_GAP_MS);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context,
                Collector<Tuple4<String, Long, Long, Double>> out) throws IOException {
            Tuple2<Long, Long> found = visit.value();
            if (found != null && timestamp == found.f0 + VISIT_GAP_MS) {
                visit.clear();
                out.collect(Tuple4.of(context.getCurrentKey(), timestamp, found.f1, 0.0));
            }
        }
    }

    /** Upserts the running sums into a dictionary and emits nothing; adds up its figures at the end. */
    private static final class LastSums extends RichFilterFunction<Tuple2<String, Long>> {
        private final Map<String, Long> found = new HashMap<>();

        @Override
        public boolean filter(Tuple2<String, Long> sum) {
            found.put(sum.f0, sum.f1);
            return false;
        }

        @Override
        public void close() {
            synchronized (CHECK) {
                CHECK.merge("users", (double) found.size(), Double::sum);
                for (long clicks : found.values()) {
                    CHECK.merge("clicks", (double) clicks, Double::sum);
                    CHECK.merge("highest", (double) clicks, Double::max);
                }
            }
        }
    }

    /** Upserts results by key and time and emits nothing; adds up its figures at the end. */
    private static final class LastResults extends RichFilterFunction<Tuple4<String, Long, Long, Double>> {
        private final boolean sumsOnly;
        private final Map<Tuple2<String, Long>, Tuple2<Long, Double>> found = new HashMap<>();

        LastResults(boolean sumsOnly) {
            this.sumsOnly = sumsOnly;
        }

        @Override
        public boolean filter(Tuple4<String, Long, Long, Double> result) {
            found.put(Tuple2.of(result.f0, result.f1), Tuple2.of(result.f2, result.f3));
            return false;
        }

        @Override
        public void close() {
            synchronized (CHECK) {
                if (!sumsOnly) {
                    CHECK.merge("windows", (double) found.size(), Double::sum);
                }
                for (Tuple2<Long, Double> sums : found.values()) {
                    CHECK.merge("count", (double) sums.f0, Double::sum);
                    CHECK.merge("amount", sums.f1, Double::sum);
                }
            }
        }
    }
}
