import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies records from one topic to another, to the same partition, in transactions, as a member of
 * a group, until it is killed: BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID and settings of the
 * consumer as NAME=VALUE. Prints "copied COUNT" after each commit, and what went wrong. After a
 * fatal error it begins anew with another producer.
 */
class Copier {
    private static final int MOST = 50;

    private final String[] arguments;

    private Copier(String[] arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] arguments) {
        while (true) {
            try {
                new Copier(arguments).run();
            } catch (KafkaException error) {
                System.out.println("anew " + error);
            }
        }
    }

    private void run() {
        try (KafkaConsumer<String, String> consumer = consumer();
                KafkaProducer<String, String> producer = producer()) {
            producer.initTransactions();
            consumer.subscribe(Set.of(arguments[1]));
            while (true) {
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (!polled.isEmpty()) {
                    copy(consumer, producer, polled);
                }
            }
        }
    }

    private void copy(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> polled) {
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> one : polled) {
                producer.send(
                        new ProducerRecord<>(arguments[2], one.partition(), null, one.value()));
            }
            producer.sendOffsetsToTransaction(polled.nextOffsets(), consumer.groupMetadata());
            producer.commitTransaction();
            System.out.println("copied " + polled.count());
        } catch (ProducerFencedException
                | InvalidProducerEpochException
                | OutOfOrderSequenceException error) {
            throw error;
        } catch (KafkaException error) {
            System.out.println("aborted " + error);
            producer.abortTransaction();
            goBack(consumer, consumer.assignment());
        }
    }

    /** To what is committed: what was polled since is to be polled again. */
    private void goBack(
            KafkaConsumer<String, String> consumer, Collection<TopicPartition> places) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.copyOf(places));
        for (TopicPartition place : places) {
            OffsetAndMetadata known = committed.get(place);
            consumer.seek(place, known == null ? 0 : known.offset());
        }
    }

    private KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(
                Map.of(
                        "bootstrap.servers", arguments[0],
                        "transactional.id", arguments[4],
                        "transaction.timeout.ms", "15000",
                        "request.timeout.ms", "5000",
                        "delivery.timeout.ms", "12000"),
                new StringSerializer(),
                new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[3]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", MOST);
        settings.put("metadata.max.age.ms", "2000");
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
