import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Carries out operations: a line {"operation", "arguments"} in, a line {"result"} or {"code",
 * "message"} out. Started with the bootstrap address.
 */
class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 30_000;
    /** How to prove who one is: properties, from the environment. */
    private static final Map<String, String> SECURITY = security();

    private final String bootstrap;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments[0]);
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
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                Errors known = Errors.forException(cause);
                answer.put("code", known == Errors.UNKNOWN_SERVER_ERROR ? null : known.code());
                answer.put("message", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private Object carryOut(String operation, JsonNode asked) throws Exception {
        switch (operation) {
            case "produce":
                return produce(asked);
            case "consume":
                return consume(asked);
            case "consumeGroup":
                return consumeGroup(asked);
            case "offsetForTime":
                return offsetForTime(asked);
            case "bounds":
                return bounds(asked);
            case "committed":
                return committed(asked);
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    private Long produce(JsonNode asked) throws Exception {
        Map<String, Object> settings =
                settings(
                        "acks", asked.get("acks").asText(),
                        "compression.type", asked.get("compression").asText(),
                        "enable.idempotence", asked.get("idempotent").asText(),
                        "linger.ms", "5",
                        "max.request.size", "10000000",
                        "request.timeout.ms", "10000",
                        "delivery.timeout.ms", "20000");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(
                        settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode one : asked.get("records")) {
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(
                                asked.get("topic").asText(),
                                asked.get("partition").asInt(),
                                one.get("timestamp").isNull() ? null : one.get("timestamp").asLong(),
                                bytes(one.get("key")),
                                bytes(one.get("value")));
                for (JsonNode header : one.get("headers")) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            RecordMetadata first = sent.get(0).get();
            return first.hasOffset() ? first.offset() : null;
        }
    }

    private List<Object> consume(JsonNode asked) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            TopicPartition place = place(asked);
            consumer.assign(Set.of(place));
            long offset = asked.get("offset").asLong();
            if (offset < 0) {
                consumer.seekToBeginning(Set.of(place));
            } else {
                consumer.seek(place, offset);
            }
            return shown(read(consumer, asked.get("count").asInt()));
        }
    }

    private List<Object> consumeGroup(JsonNode asked) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked.get("group").asText())) {
            consumer.subscribe(Set.of(asked.get("topic").asText()));
            List<ConsumerRecord<byte[], byte[]>> found = read(consumer, asked.get("count").asInt());
            Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> one : found) {
                behind.put(
                        new TopicPartition(one.topic(), one.partition()),
                        new OffsetAndMetadata(one.offset() + 1));
            }
            consumer.commitSync(behind);
            return shown(found);
        }
    }

    private long offsetForTime(JsonNode asked) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            TopicPartition place = place(asked);
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(place, asked.get("timestamp").asLong()))
                            .get(place);
            return found == null ? -1 : found.offset();
        }
    }

    private List<Long> bounds(JsonNode asked) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            Set<TopicPartition> places = Set.of(place(asked));
            return List.of(
                    consumer.beginningOffsets(places).values().iterator().next(),
                    consumer.endOffsets(places).values().iterator().next());
        }
    }

    private long committed(JsonNode asked) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked.get("group").asText())) {
            TopicPartition place = place(asked);
            OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
            return found == null ? -1 : found.offset();
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Map<String, Object> settings =
                settings(
                        "enable.auto.commit", "false",
                        "auto.offset.reset", "earliest",
                        "fetch.max.wait.ms", "100");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, String> security() {
        String told = System.getenv("QBUS_COMPAT_SECURITY");
        try {
            return told == null
                    ? Map.of()
                    : JSON.readValue(told, new TypeReference<Map<String, String>>() {});
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException(error);
        }
    }

    private Map<String, Object> settings(String... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.putAll(SECURITY);
        for (int i = 0; i < pairs.length; i += 2) {
            settings.put(pairs[i], pairs[i + 1]);
        }
        return settings;
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(
            KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        if (found.size() < count) {
            throw new IllegalStateException("only " + found.size() + " records came");
        }
        return found.subList(0, count);
    }

    private static List<Object> shown(List<ConsumerRecord<byte[], byte[]>> records) {
        List<Object> shown = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> one : records) {
            List<Object> headers = new ArrayList<>();
            for (Header header : one.headers()) {
                List<String> pair = new ArrayList<>();
                pair.add(header.key());
                pair.add(text(header.value()));
                headers.add(pair);
            }
            Map<String, Object> fields = new HashMap<>();
            fields.put("partition", one.partition());
            fields.put("offset", one.offset());
            fields.put("timestamp", one.timestamp());
            fields.put("key", text(one.key()));
            fields.put("value", text(one.value()));
            fields.put("headers", headers);
            shown.add(fields);
        }
        return shown;
    }

    private static TopicPartition place(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
