import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Kafka's own assignors, asked line by line.
 *
 * <pre>
 * topic NAME RACK+RACK...        (one word for each partition; "-": no rack)
 * member ID INSTANCE RACK TOPIC...   ("-": none)
 * assign ASSIGNOR                answered by "ID=TOPIC-PARTITION,... ..."; then all is forgotten
 * </pre>
 */
public class Assign {
    private static final Map<String, List<PartitionInfo>> topics = new TreeMap<>();
    private static final Map<String, Subscription> members = new TreeMap<>();

    public static void main(String[] ignored) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = Arrays.asList(line.split(" "));
            switch (words.get(0)) {
                case "topic" -> topics.put(words.get(1), partitions(words));
                case "member" -> members.put(words.get(1), subscription(words));
                default -> System.out.println(assign(words.get(1)));
            }
        }
    }

    private static String assign(String name) {
        AbstractPartitionAssignor assignor =
            name.equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
        String found = new TreeMap<>(assignor.assignPartitions(topics, members))
            .entrySet().stream()
            .map(entry -> entry.getKey() + "=" + entry.getValue().stream()
                .map(Object::toString).sorted().collect(Collectors.joining(",")))
            .collect(Collectors.joining(" "));
        topics.clear();
        members.clear();
        return found;
    }

    private static List<PartitionInfo> partitions(List<String> words) {
        List<PartitionInfo> found = new ArrayList<>();
        for (String racks : words.subList(2, words.size())) {
            Node[] replicas = Arrays.stream(racks.split("\\+"))
                .map(rack -> new Node(1, "host", 1, rack.equals("-") ? null : rack))
                .toArray(Node[]::new);
            found.add(new PartitionInfo(words.get(1), found.size(), null, replicas, replicas));
        }
        return found;
    }

    private static Subscription subscription(List<String> words) {
        Subscription found = new Subscription(
            words.subList(4, words.size()), null, List.of(), -1, optional(words.get(3)));
        found.setGroupInstanceId(optional(words.get(2)));
        return found;
    }

    private static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }
}
