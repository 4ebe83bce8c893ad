import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Counts words exactly once: BOOTSTRAP SOURCE TARGET STATE_DIRECTORY and settings as NAME=VALUE.
 * Prints "state NAME" at each change of its state, and "restored COUNT" when a store was restored.
 */
class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1] + "-counts");
        settings.put("state.dir", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("commit.interval.ms", "100");
        settings.put("num.stream.threads", "2");
        settings.put("replication.factor", "3");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        for (int i = 4; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines =
                builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(
                error -> {
                    say("failed " + error);
                    return StreamThreadExceptionResponse.REPLACE_THREAD;
                });
        streams.setGlobalStateRestoreListener(new Restored());
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    streams.close();
                                    ended.countDown();
                                }));
        streams.start();
        ended.await();
    }

    private static synchronized void say(String what) {
        System.out.println(what);
        System.out.flush();
    }

    private static class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition place, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition place, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition place, String store, long total) {
            say("restored " + total);
        }
    }
}
