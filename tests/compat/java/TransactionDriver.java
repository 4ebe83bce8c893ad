import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Drives transactional producers, which it keeps by name: a line {"operation", "arguments"} in, a
 * line {"result"} or {"code", "message"} out. Started with the bootstrap address.
 */
class TransactionDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 30_000;

    private final String bootstrap;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    private TransactionDriver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        TransactionDriver driver = new TransactionDriver(arguments[0]);
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            JsonNode question = JSON.readTree(line);
            Map<String, Object> answer = new HashMap<>();
            try {
                String operation = question.get("operation").asText();
                answer.put("result", driver.carryOut(operation, question.get("arguments")));
            } catch (Exception error) {
                answer.put("code", codeOf(error));
                answer.put("message", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    /** The first code that an error or what caused it has. */
    private static int codeOf(Throwable error) {
        for (Throwable one = error; one != null; one = one.getCause()) {
            Errors known = Errors.forException(one);
            if (known != Errors.UNKNOWN_SERVER_ERROR && !(one instanceof ExecutionException)) {
                return known.code();
            }
        }
        return Errors.UNKNOWN_SERVER_ERROR.code();
    }

    private Object carryOut(String operation, JsonNode asked) throws Exception {
        switch (operation) {
            case "open":
                return open(asked);
            case "begin":
                producer(asked).beginTransaction();
                return null;
            case "send":
                return send(asked);
            case "sendOffsets":
                return sendOffsets(asked);
            case "commit":
                producer(asked).commitTransaction();
                return null;
            case "abort":
                producer(asked).abortTransaction();
                return null;
            case "close":
                producers.remove(asked.get("producer").asText()).close(Duration.ZERO);
                return null;
            case "read":
                return read(asked);
            case "copy":
                return copy(asked);
            case "latest":
                return latest(asked);
            case "fence":
                try (Admin admin = admin()) {
                    admin.fenceProducers(Set.of(asked.get("transactionalId").asText())).all().get();
                    return null;
                }
            case "list":
                return list();
            case "offset":
                return offset(asked);
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    private Object open(JsonNode asked) {
        KafkaProducer<String, String> made =
                new KafkaProducer<>(
                        Map.of(
                                "bootstrap.servers", bootstrap,
                                "transactional.id", asked.get("transactionalId").asText(),
                                "transaction.timeout.ms", asked.get("timeoutMs").asText(),
                                "max.block.ms", String.valueOf(PATIENCE_MS)),
                        new StringSerializer(),
                        new StringSerializer());
        made.initTransactions();
        producers.put(asked.get("producer").asText(), made);
        return null;
    }

    private KafkaProducer<String, String> producer(JsonNode asked) {
        return producers.get(asked.get("producer").asText());
    }

    private Object send(JsonNode asked) throws Exception {
        KafkaProducer<String, String> producer = producer(asked);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : asked.get("values")) {
            sent.add(
                    producer.send(
                            new ProducerRecord<>(
                                    asked.get("topic").asText(),
                                    asked.get("partition").asInt(),
                                    null,
                                    value.asText())));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        return null;
    }

    private Object sendOffsets(JsonNode asked) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode one : asked.get("offsets")) {
            offsets.put(
                    new TopicPartition(one.get(0).asText(), one.get(1).asInt()),
                    new OffsetAndMetadata(one.get(2).asLong()));
        }
        producer(asked)
                .sendOffsetsToTransaction(
                        offsets, new ConsumerGroupMetadata(asked.get("group").asText()));
        return null;
    }

    private Object read(JsonNode asked) {
        int count = asked.get("count").asInt();
        TopicPartition place = place(asked);
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                consumer(null, asked.get("committed").asBoolean())) {
            consumer.assign(Set.of(place));
            consumer.seekToBeginning(Set.of(place));
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (found.size() < count) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("only " + found.size() + " records came");
                }
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    found.add(List.of(one.offset(), one.value()));
                }
            }
        }
        return found.subList(0, count);
    }

    private Object copy(JsonNode asked) throws Exception {
        String group = asked.get("group").asText();
        String target = asked.get("target").asText();
        int left = asked.get("count").asInt();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = consumer(group, true);
                KafkaProducer<String, String> producer =
                        new KafkaProducer<>(
                                Map.of(
                                        "bootstrap.servers", bootstrap,
                                        "transactional.id", "copy-" + group),
                                new StringSerializer(),
                                new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(Set.of(asked.get("source").asText()));
            while (left > 0) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(left + " records did not come");
                }
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (polled.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> one : polled) {
                    producer.send(
                            new ProducerRecord<>(target, one.partition(), one.key(), one.value()));
                }
                producer.sendOffsetsToTransaction(polled.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
                left -= polled.count();
            }
        }
        return null;
    }

    private long latest(JsonNode asked) {
        TopicPartition place = place(asked);
        try (KafkaConsumer<String, String> consumer =
                consumer(null, asked.get("committed").asBoolean())) {
            return consumer.endOffsets(Set.of(place)).get(place);
        }
    }

    private Object list() throws Exception {
        Map<String, String> found = new TreeMap<>();
        try (Admin admin = admin()) {
            for (TransactionListing one : admin.listTransactions().all().get()) {
                found.put(one.transactionalId(), one.state().toString());
            }
        }
        return found;
    }

    /** A consumer asks for what is stable, an administrator for what is committed. */
    private long offset(JsonNode asked) throws Exception {
        String group = asked.get("group").asText();
        TopicPartition place = new TopicPartition(asked.get("topic").asText(), 0);
        OffsetAndMetadata found;
        if (asked.get("stable").asBoolean()) {
            try (KafkaConsumer<String, String> consumer = consumer(group, true)) {
                found = consumer.committed(Set.of(place), Duration.ofSeconds(3)).get(place);
            }
        } else {
            try (Admin admin = admin()) {
                found =
                        admin.listConsumerGroupOffsets(group)
                                .partitionsToOffsetAndMetadata()
                                .get()
                                .get(place);
            }
        }
        return found == null ? -1 : found.offset();
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private KafkaConsumer<String, String> consumer(String group, boolean committed) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static TopicPartition place(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
    }
}
