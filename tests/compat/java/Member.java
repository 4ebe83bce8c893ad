import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A group member: BOOTSTRAP TOPIC GROUP and settings, each as NAME=VALUE. A topic that begins with
 * "^" is a pattern for the broker. Prints each change of its assignment, and the place of each
 * record when it is committed. SIGTERM makes it leave.
 */
class Member {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "1000");
        for (int i = 3; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(
                        settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    consumer.wakeup();
                                    try {
                                        main.join(20_000);
                                    } catch (InterruptedException error) {
                                        // it ends anyway
                                    }
                                }));
        if (arguments[1].startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(arguments[1]));
        } else {
            consumer.subscribe(Set.of(arguments[1]));
        }
        try {
            run(consumer);
        } catch (WakeupException stopped) {
            // it leaves
        } catch (KafkaException error) {
            System.out.println("failed " + error);
        } finally {
            consumer.close();
        }
    }

    private static void run(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Set<TopicPartition> told = Set.of();
        while (true) {
            ConsumerRecords<byte[], byte[]> polled;
            try {
                polled = consumer.poll(Duration.ofMillis(100));
            } catch (UnknownMemberIdException fenced) {
                continue; // it was fenced just when it asked for offsets, and joins again
            } catch (IllegalStateException fenced) {
                if (!String.valueOf(fenced.getMessage()).startsWith("No current assignment")) {
                    throw fenced;
                }
                continue; // it was fenced just when it collected what had arrived, and joins again
            }
            Set<TopicPartition> assigned = Set.copyOf(consumer.assignment());
            if (!assigned.equals(told)) {
                told = assigned;
                List<Object> places = new ArrayList<>();
                told.forEach(one -> places.add(List.of(one.topic(), one.partition())));
                tell("assigned", places);
            }
            if (polled.isEmpty()) {
                continue;
            }
            try {
                consumer.commitSync();
            } catch (WakeupException stopped) {
                consumer.commitSync();
                tellOf(polled);
                throw stopped;
            } catch (CommitFailedException refused) {
                continue; // their next owner reads them again
            }
            tellOf(polled);
        }
    }

    private static void tellOf(ConsumerRecords<byte[], byte[]> polled) throws Exception {
        for (ConsumerRecord<byte[], byte[]> one : polled) {
            tell("consumed", List.of(one.partition(), one.offset()));
        }
    }

    private static void tell(String what, Object value) throws Exception {
        System.out.println(JSON.writeValueAsString(Map.of(what, value)));
    }
}
