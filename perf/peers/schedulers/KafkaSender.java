import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client as a sender for perf.delay_exact:
 * BOOTSTRAP TOPIC PARTITIONS COUNT START_MS SPREAD_MS FAR_EVERY FAR_MS SIZE.
 */
class KafkaSender {
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        long start = Long.parseLong(arguments[4]);
        int spreadMs = Integer.parseInt(arguments[5]);
        int farEvery = Integer.parseInt(arguments[6]);
        long farMs = Long.parseLong(arguments[7]);
        int size = Integer.parseInt(arguments[8]);

        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("linger.ms", "20");
        settings.put("batch.size", "1000000");
        settings.put("buffer.memory", "134217728");
        AtomicReference<Exception> failure = new AtomicReference<>();
        Random random = new Random(1);
        long began = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < count; number++) {
                long due = start + random.nextInt(spreadMs) + (number % farEvery == 0 ? farMs : 0);
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(
                                arguments[1], number % partitions, null, value(due, number, size));
                record.headers().add("qbus-deliver-at", ascii(Long.toString(due)));
                producer.send(
                        record,
                        (place, reason) -> {
                            if (reason != null) {
                                failure.set(reason);
                            }
                        });
            }
            producer.flush();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.printf(
                Locale.ROOT,
                "{\"seconds\": %f, \"spare_ms\": %d}%n",
                (System.nanoTime() - began) / 1e9,
                start - System.currentTimeMillis());
    }

    private static byte[] value(long due, int number, int size) {
        byte[] text = ascii(String.format(Locale.ROOT, "%d %09d ", due, number));
        byte[] value = Arrays.copyOf(text, size);
        Arrays.fill(value, text.length, size, (byte) 'x');
        return value;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
