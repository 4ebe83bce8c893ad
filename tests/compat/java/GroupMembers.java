import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.StaleMemberEpochException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a group, each in a thread: BOOTSTRAP TOPIC GROUP. It takes the words and prints the
 * lines of tests/cluster/group_member.py: "join", "unsubscribe", "subscribe" and "leave" with a
 * name; at the end of standard input all leave. A member that fails ends the process.
 */
class GroupMembers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long COMMIT_NS = 1_000_000_000L;
    private static final long INSIST_NS = 30_000_000_000L;

    private enum Wish {
        SUBSCRIBED,
        IDLE,
        GONE
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new ConcurrentHashMap<>();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "join":
                    members.put(words[1], new Member(words[1], arguments));
                    members.get(words[1]).thread.start();
                    break;
                case "unsubscribe":
                    members.get(words[1]).wish = Wish.IDLE;
                    break;
                case "subscribe":
                    members.get(words[1]).wish = Wish.SUBSCRIBED;
                    break;
                case "leave":
                    members.get(words[1]).wish = Wish.GONE;
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        for (Member member : members.values()) {
            member.wish = Wish.GONE;
        }
        for (Member member : members.values()) {
            member.thread.join();
        }
    }

    /** One member; everything but its wish belongs to its thread. */
    private static class Member implements Runnable, ConsumerRebalanceListener {
        final Thread thread;
        volatile Wish wish = Wish.SUBSCRIBED;
        private final String name;
        private final String topic;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        private long committedAt = System.nanoTime();

        Member(String name, String[] arguments) {
            this.name = name;
            this.topic = arguments[1];
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("group.id", arguments[2]);
            settings.put("client.id", name);
            settings.put("group.protocol", "consumer");
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("fetch.max.wait.ms", "1000");
            this.consumer =
                    new KafkaConsumer<>(
                            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            this.thread = new Thread(this, name);
        }

        @Override
        public void run() {
            try {
                while (wish != Wish.GONE) {
                    turn();
                }
                tell("leaving", Map.of());
                consumer.close();
                tell("left", Map.of());
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }

        private void turn() throws Exception {
            boolean isSubscribed = !consumer.subscription().isEmpty();
            if (wish == Wish.IDLE) {
                if (isSubscribed) {
                    consumer.unsubscribe();
                }
                Thread.sleep(POLL.toMillis());
                return;
            }
            if (!isSubscribed) {
                consumer.subscribe(Set.of(topic), this);
            }
            try {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(POLL)) {
                    tell("read", Map.of(one.partition(), one.offset()));
                    next.put(
                            new TopicPartition(one.topic(), one.partition()),
                            new OffsetAndMetadata(one.offset() + 1));
                }
            } catch (RetriableException | StaleMemberEpochException | UnknownMemberIdException gone) {
                return; // it asked for offsets just when it left, or was fenced, and asks again
            }
            if (System.nanoTime() - committedAt > COMMIT_NS) {
                committedAt = System.nanoTime();
                commit(new HashMap<>(next));
            }
        }

        /** Commits; returns whether all is stored. Otherwise the next commit covers it. */
        private boolean commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            if (offsets.isEmpty()) {
                return true;
            }
            tell("committing", positions(offsets));
            try {
                consumer.commitSync(offsets);
            } catch (KafkaException refused) {
                System.err.println(name + " cannot commit " + offsets + ": " + refused);
                if (refused instanceof CommitFailedException
                        && !refused.getMessage().contains("stale member epoch")) {
                    tell("expelled", Map.of());
                }
                return false;
            }
            offsets.forEach(next::remove);
            tell("committed", positions(offsets));
            return true;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            tell("assigned", indexes(places));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(next);
            offsets.keySet().retainAll(places);
            long begun = System.nanoTime();
            while (!commit(offsets) && System.nanoTime() - begun < INSIST_NS) {
                try {
                    Thread.sleep(250);
                } catch (InterruptedException stopped) {
                    throw new IllegalStateException(stopped);
                }
            }
            next.keySet().removeAll(places);
            tell("revoked", indexes(places));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            next.keySet().removeAll(places);
            tell("lost", indexes(places));
        }

        private static Map<Integer, Long> positions(
                Map<TopicPartition, OffsetAndMetadata> offsets) {
            Map<Integer, Long> found = new HashMap<>();
            offsets.forEach((place, offset) -> found.put(place.partition(), offset.offset()));
            return found;
        }

        private static Map<Integer, Long> indexes(Collection<TopicPartition> places) {
            Map<Integer, Long> found = new HashMap<>();
            places.forEach(place -> found.put(place.partition(), -1L));
            return found;
        }

        /** Prints what happens now, by the clock that all processes of the machine share. */
        private void tell(String what, Map<Integer, Long> offsets) {
            List<Object> event = new ArrayList<>(List.of(name, what));
            event.add(System.nanoTime() / 1e9);
            event.add(offsets);
            try {
                System.out.println(JSON.writeValueAsString(event));
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
