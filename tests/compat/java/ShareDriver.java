import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Drives members of share groups: a line {"operation", "arguments"} in, a line {"result"} or
 * {"code", "message"} out. Started with the bootstrap address.
 */
class ShareDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, KafkaShareConsumer<String, String>> members = new HashMap<>();
    private final Map<String, Map<String, ConsumerRecord<String, String>>> polled = new HashMap<>();

    private ShareDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        ShareDriver driver = new ShareDriver(arguments[0]);
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
                answer.put("code", (int) Errors.forException(cause).code());
                answer.put("message", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private Object carryOut(String operation, JsonNode asked) throws Exception {
        switch (operation) {
            case "configure":
                return configure(asked);
            case "join":
                return join(asked);
            case "poll":
                return poll(asked);
            case "acknowledge":
                return acknowledge(asked);
            case "commit":
                return commit(asked);
            case "leave":
                members.remove(asked.get("member").asText()).close();
                return null;
            case "describe":
                return describe(asked.get("group").asText());
            case "offsets":
                return offsets(asked.get("group").asText());
            case "deleteGroup":
                admin.deleteShareGroups(List.of(asked.get("group").asText())).all().get();
                return null;
            case "lock":
                Optional<Integer> lock =
                        members.get(asked.get("member").asText()).acquisitionLockTimeoutMs();
                return lock.orElse(null);
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    private Object configure(JsonNode asked) throws Exception {
        ConfigResource group =
                new ConfigResource(ConfigResource.Type.GROUP, asked.get("group").asText());
        List<AlterConfigOp> edits = new ArrayList<>();
        asked.get("settings")
                .fields()
                .forEachRemaining(
                        one ->
                                edits.add(
                                        new AlterConfigOp(
                                                new ConfigEntry(
                                                        one.getKey(), one.getValue().asText()),
                                                AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(group, edits)).all().get();
        return null;
    }

    private Object join(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", asked.get("group").asText());
        asked.get("settings")
                .fields()
                .forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
        KafkaShareConsumer<String, String> member =
                new KafkaShareConsumer<>(
                        settings, new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(asked.get("topic").asText()));
        members.put(asked.get("member").asText(), member);
        polled.put(asked.get("member").asText(), new LinkedHashMap<>());
        return null;
    }

    private List<Object> poll(JsonNode asked) {
        String name = asked.get("member").asText();
        Map<String, ConsumerRecord<String, String>> known = polled.get(name);
        List<Object> found = new ArrayList<>();
        for (ConsumerRecord<String, String> one :
                members.get(name).poll(Duration.ofMillis(asked.get("ms").asLong()))) {
            known.put(one.partition() + "/" + one.offset(), one);
            found.add(
                    List.of(
                            one.partition(),
                            one.offset(),
                            one.value(),
                            one.deliveryCount().map(Short::intValue).orElse(0)));
        }
        return found;
    }

    private Object acknowledge(JsonNode asked) {
        String name = asked.get("member").asText();
        AcknowledgeType type = AcknowledgeType.valueOf(asked.get("type").asText());
        for (JsonNode offset : asked.get("offsets")) {
            String place = asked.get("partition").asText() + "/" + offset.asText();
            members.get(name).acknowledge(polled.get(name).remove(place), type);
        }
        return null;
    }

    private Map<String, String> commit(JsonNode asked) {
        Map<String, String> errors = new HashMap<>();
        Map<TopicIdPartition, Optional<KafkaException>> outcome =
                members.get(asked.get("member").asText()).commitSync();
        outcome.forEach(
                (place, error) ->
                        errors.put(
                                String.valueOf(place.partition()),
                                error.map(one -> Errors.forException(one).name()).orElse("NONE")));
        return errors;
    }

    private Map<String, Object> describe(String group) throws Exception {
        ShareGroupDescription found =
                admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
        List<Object> members = new ArrayList<>();
        found.members()
                .forEach(
                        one -> {
                            List<Integer> partitions = new ArrayList<>();
                            one.assignment()
                                    .topicPartitions()
                                    .forEach(place -> partitions.add(place.partition()));
                            members.add(partitions);
                        });
        return Map.of("state", found.groupState().toString(), "members", members);
    }

    private Map<String, Object> offsets(String group) throws Exception {
        Map<TopicPartition, SharePartitionOffsetInfo> found =
                admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                        .partitionsToOffsetInfo(group)
                        .get();
        Map<String, Object> result = new HashMap<>();
        found.forEach(
                (place, info) ->
                        result.put(
                                place.toString(),
                                List.of(info.startOffset(), info.lag().orElse(-1L))));
        return result;
    }
}
