import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Loads share groups as main.go loads other peers, with the same commands: BOOTSTRAP SIZE PARTITIONS.
 *
 * <p>A queue is a topic with a share group of the same name. {@code open} may be told how many jobs a
 * worker takes at a time; it returns when every worker is a member and has a partition.
 */
class JobLoad {
    private static final long PATIENCE_S = 60;
    private static final long GRACE_MS = 10_000;
    private static final Duration NAP = Duration.ofMillis(200);
    // A request that a worker has under way when it stops asking is answered by then.
    private static final long FETCH_WAIT_MS = 700;

    private final String bootstrap;
    private final int size;
    private final int partitions;
    private final Admin admin;
    private final List<Producer<byte[], byte[]>> adders = new ArrayList<>();
    private final List<ShareConsumer<byte[], byte[]>> takers = new ArrayList<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final AtomicLong added = new AtomicLong();
    private final AtomicLong allDone = new AtomicLong();
    private final AtomicLong sumAdded = new AtomicLong();
    private final AtomicLong sumDone = new AtomicLong();
    private String queue;
    private long askedAt;
    private boolean joined;

    private interface Task {
        void run(int place) throws Exception;
    }

    private interface Taken {
        void each(ConsumerRecord<byte[], byte[]> job);
    }

    private JobLoad(String bootstrap, int size, int partitions) {
        this.bootstrap = bootstrap;
        this.size = size;
        this.partitions = partitions;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        JobLoad load =
                new JobLoad(
                        arguments[0],
                        Integer.parseInt(arguments[1]),
                        Integer.parseInt(arguments[2]));
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println("{" + load.obey(lines.nextLine().split(" ")) + "}");
        }
        System.exit(0);
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "queue":
                return make(words[1]);
            case "open":
                return open(Integer.parseInt(words[1]), words.length > 2 ? words[2] : null);
            case "add":
                return add(Double.parseDouble(words[1]));
            case "work":
                return work(Long.parseLong(words[1]), Double.parseDouble(words[2]));
            case "steady":
                return steady(Double.parseDouble(words[1]), Double.parseDouble(words[2]));
            case "fill":
                return fill(Long.parseLong(words[1]), Double.parseDouble(words[2]));
            case "close":
                return close();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String make(String name) throws Exception {
        queue = name;
        added.set(0);
        allDone.set(0);
        sumAdded.set(0);
        sumDone.set(0);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1)))
                .all()
                .get(PATIENCE_S, TimeUnit.SECONDS);
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        admin.incrementalAlterConfigs(
                        Map.of(
                                new ConfigResource(ConfigResource.Type.GROUP, name),
                                List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                .all()
                .get(PATIENCE_S, TimeUnit.SECONDS);
        return "";
    }

    private String open(int workers, String most) throws Exception {
        for (int i = 0; i < workers; i++) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("linger.ms", "0");
            adders.add(
                    new KafkaProducer<>(
                            settings, new ByteArraySerializer(), new ByteArraySerializer()));
            adders.get(i).partitionsFor(queue);
            settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", queue);
            settings.put("share.acknowledgement.mode", "explicit");
            if (most != null) {
                settings.put("max.poll.records", most);
                settings.put("share.acquire.mode", "record_limit");
            }
            takers.add(
                    new KafkaShareConsumer<>(
                            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            takers.get(i).subscribe(List.of(queue));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        together(
                workers,
                place -> {
                    while (!allJoined(workers)) {
                        if (System.nanoTime() > deadline) {
                            throw new IllegalStateException("not all have joined");
                        }
                        takers.get(place).poll(NAP);
                    }
                });
        return "";
    }

    /** Whether so many members have a partition; asks at most ten times a second. */
    private synchronized boolean allJoined(int workers) throws Exception {
        if (System.nanoTime() - askedAt > 100_000_000L) {
            joined = members() == workers;
            askedAt = System.nanoTime();
        }
        return joined;
    }

    private long members() throws Exception {
        try {
            return admin.describeShareGroups(List.of(queue))
                    .all()
                    .get(PATIENCE_S, TimeUnit.SECONDS)
                    .get(queue)
                    .members()
                    .stream()
                    .filter(JobLoad::hasPartition)
                    .count();
        } catch (ExecutionException reason) {
            if (reason.getCause() instanceof GroupIdNotFoundException) {
                return 0; // there is none before its first member
            }
            throw reason;
        }
    }

    private static boolean hasPartition(ShareMemberDescription member) {
        return !member.assignment().topicPartitions().isEmpty();
    }

    private String close() throws Exception {
        together(adders.size(), place -> adders.get(place).close());
        together(takers.size(), place -> takers.get(place).close(Duration.ofSeconds(PATIENCE_S)));
        adders.clear();
        takers.clear();
        joined = false;
        return "";
    }

    private String add(double seconds) throws Exception {
        Thread.sleep(FETCH_WAIT_MS);
        long began = System.nanoTime();
        long before = added.get();
        together(
                adders.size(),
                place -> {
                    while (System.nanoTime() - began < seconds * 1e9) {
                        adders.get(place).send(next(0)).get(PATIENCE_S, TimeUnit.SECONDS);
                    }
                });
        return rate(added.get() - before, System.nanoTime() - began);
    }

    private String work(long count, double seconds) throws Exception {
        long began = System.nanoTime();
        AtomicLong done = new AtomicLong();
        AtomicLong finished = new AtomicLong(1);
        together(
                takers.size(),
                place -> {
                    while (done.get() < count && System.nanoTime() - began < seconds * 1e9) {
                        int taken = take(place, job -> sumDone.addAndGet(number(job.value())));
                        if (taken > 0) {
                            allDone.addAndGet(taken);
                            done.addAndGet(taken);
                            finished.set(System.nanoTime() - began);
                        }
                    }
                });
        if (allDone.get() >= added.get() && sumAdded.get() != sumDone.get()) {
            throw new IllegalStateException("a job was lost, or came twice");
        }
        return rate(done.get(), finished.get());
    }

    private String steady(double perSecond, double seconds) throws Exception {
        long count = (long) (perSecond * seconds);
        long before = added.get();
        long start = nowNs() + 100_000_000L;
        long last = start + (long) (seconds * 1e9) + GRACE_MS * 1_000_000;
        AtomicLong received = new AtomicLong();
        double[] late = new double[(int) count];
        int workers = takers.size();
        together(
                2 * workers,
                place -> {
                    if (place < workers) {
                        for (long i = place; i < count && nowNs() < last; i += workers) {
                            long due = start + (long) (i / perSecond * 1e9);
                            TimeUnit.NANOSECONDS.sleep(Math.max(0, due - nowNs()));
                            adders.get(place).send(next(due)).get(PATIENCE_S, TimeUnit.SECONDS);
                        }
                        return;
                    }
                    while (received.get() < count && nowNs() < last) {
                        take(
                                place - workers,
                                job -> {
                                    long at = received.getAndIncrement();
                                    late[(int) at] = (nowNs() - due(job.value())) / 1e6;
                                });
                    }
                });
        if (received.get() == 0) {
            throw new IllegalStateException("no job came");
        }
        double[] sorted = Arrays.copyOf(late, (int) received.get());
        Arrays.sort(sorted);
        return String.format(
                Locale.ROOT,
                "\"added\": %d, \"jobs\": %d, \"p50_ms\": %f, \"p99_ms\": %f, \"most_ms\": %f",
                added.get() - before,
                received.get(),
                sorted[sorted.length / 2],
                sorted[sorted.length * 99 / 100],
                sorted[sorted.length - 1]);
    }

    private String fill(long count, double seconds) throws Exception {
        long began = System.nanoTime();
        AtomicReference<Exception> failure = new AtomicReference<>();
        long filled = 0;
        while (filled < count && System.nanoTime() - began < seconds * 1e9) {
            adders.get(0)
                    .send(
                            next(0),
                            (place, reason) -> {
                                if (reason != null) {
                                    failure.set(reason);
                                }
                            });
            filled++;
        }
        adders.get(0).flush();
        if (failure.get() != null) {
            throw failure.get();
        }
        return rate(filled, System.nanoTime() - began);
    }

    /** Takes jobs, acknowledges them, and returns how many there were. */
    private int take(int place, Taken taken) {
        ShareConsumer<byte[], byte[]> taker = takers.get(place);
        ConsumerRecords<byte[], byte[]> jobs = taker.poll(NAP);
        for (ConsumerRecord<byte[], byte[]> job : jobs) {
            taken.each(job);
            taker.acknowledge(job);
        }
        if (jobs.isEmpty()) {
            return 0;
        }
        Map<TopicIdPartition, Optional<KafkaException>> answers = taker.commitSync();
        for (Optional<KafkaException> answer : answers.values()) {
            if (answer.isPresent()) {
                throw answer.get();
            }
        }
        return jobs.count();
    }

    /** The next job: its number, when it is due, and filler. */
    private ProducerRecord<byte[], byte[]> next(long due) {
        long number = added.incrementAndGet();
        sumAdded.addAndGet(number);
        byte[] text =
                String.format(Locale.ROOT, "%012d %019d ", number, due)
                        .getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(text, size);
        Arrays.fill(body, text.length, size, (byte) 'x');
        return new ProducerRecord<>(queue, (int) (number % partitions), null, body);
    }

    private static long number(byte[] body) {
        return Long.parseLong(new String(body, 0, 12, StandardCharsets.US_ASCII));
    }

    private static long due(byte[] body) {
        return Long.parseLong(new String(body, 13, 19, StandardCharsets.US_ASCII));
    }

    private static long nowNs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    /** Runs a task for each place at once; returns when all are done, and throws what one threw. */
    private void together(int places, Task task) throws Exception {
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < places; i++) {
            int place = i;
            running.add(
                    threads.submit(
                            () -> {
                                task.run(place);
                                return null;
                            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
    }

    private static String rate(long jobs, long ns) {
        return String.format(Locale.ROOT, "\"jobs\": %d, \"seconds\": %f", jobs, ns / 1e9);
    }
}
