import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * Drives Kafka's smoke test of Streams: BOOTSTRAP, and for how many SECONDS to send. It judges the
 * results when nothing has been written for a while: whether all transactions have ended is looked
 * at with two requests, between which nothing may be committed.
 */
class SmokeDriver {
    private static final int KEYS = 20;
    private static final int RECORDS_OF_EACH = 1000;
    private static final int QUIET_SECONDS = 10;

    public static void main(String[] arguments) throws Exception {
        Duration time = Duration.ofSeconds(Long.parseLong(arguments[1]));
        Map<String, Set<Integer>> sent =
            SmokeTestDriver.generate(arguments[0], KEYS, RECORDS_OF_EACH, time);
        System.out.println("sent all");
        waitQuiet(arguments[0]);
        System.out.println("all is quiet");
        SmokeTestDriver.verify(arguments[0], sent, RECORDS_OF_EACH, true);
        System.exit(0);
    }

    private static void waitQuiet(String bootstrap) throws InterruptedException {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> places = new ArrayList<>();
            for (String topic : SmokeTestDriver.topics()) {
                for (PartitionInfo partition : consumer.partitionsFor(topic)) {
                    places.add(new TopicPartition(topic, partition.partition()));
                }
            }
            Map<TopicPartition, Long> before = Map.of();
            for (int quiet = 0; quiet < QUIET_SECONDS; quiet++) {
                Thread.sleep(1000);
                Map<TopicPartition, Long> ends = consumer.endOffsets(places);
                if (!ends.equals(before)) {
                    quiet = 0;
                }
                before = ends;
            }
        }
    }
}
