import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Loads a RocketMQ as main.go loads other peers: NAMESERVER COUNT LEAD_MS SPREAD_MS SIZE WAIT.
 */
class RocketMq {
    private static final int QUEUES = 3;
    private static final int UNANSWERED = 4_000;
    private static final long PATIENCE_S = 120;

    private final String address;
    private final String topic = "later-" + System.nanoTime();
    private final int count;
    private final double[] late;
    private final AtomicInteger received = new AtomicInteger();
    private final AtomicInteger noted = new AtomicInteger();
    private final CountDownLatch all = new CountDownLatch(1);

    private RocketMq(String address, int count) {
        this.address = address;
        this.count = count;
        this.late = new double[count];
    }

    public static void main(String[] arguments) throws Exception {
        RocketMq load = new RocketMq(arguments[0], Integer.parseInt(arguments[1]));
        DefaultMQProducer producer = load.producer();
        boolean waits = !arguments[5].equals("0");
        if (waits) {
            load.receive();
        }
        load.schedule(
                producer,
                Long.parseLong(arguments[2]),
                Integer.parseInt(arguments[3]),
                Integer.parseInt(arguments[4]));
        if (waits) {
            load.all.await(PATIENCE_S, TimeUnit.SECONDS);
            load.reportLateness();
        }
        System.exit(0); // its clients' threads are no daemons
    }

    private DefaultMQProducer producer() throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        producer.createTopic("TBW102", topic, QUEUES, Map.of());
        return producer;
    }

    private void schedule(DefaultMQProducer producer, long leadMs, int spreadMs, int size)
            throws Exception {
        Random random = new Random(1);
        long start = System.currentTimeMillis() + leadMs;
        long began = System.nanoTime();
        Semaphore free = new Semaphore(UNANSWERED);
        AtomicReference<Object> failure = new AtomicReference<>();
        SendCallback callback =
                new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        if (result.getSendStatus() != SendStatus.SEND_OK) {
                            failure.set(result);
                        }
                        free.release();
                    }

                    @Override
                    public void onException(Throwable reason) {
                        failure.set(reason);
                        free.release();
                    }
                };
        for (int i = 0; i < count; i++) {
            long due = start + random.nextInt(spreadMs);
            byte[] body = new byte[size];
            Arrays.fill(body, (byte) 'x');
            byte[] text = Long.toString(due).getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(text, 0, body, 0, text.length);
            Message message = new Message(topic, body);
            message.setDeliverTimeMs(due);
            free.acquire();
            producer.send(message, callback);
        }
        free.acquire(UNANSWERED);
        if (failure.get() != null) {
            throw new IllegalStateException("a message was not taken: " + failure.get());
        }
        report("\"seconds\": %f, \"spare_ms\": %d",
                (System.nanoTime() - began) / 1e9, start - System.currentTimeMillis());
    }

    private void receive() throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic);
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            long now = System.currentTimeMillis();
                            for (Message message : messages) {
                                take(now, message.getBody());
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
    }

    private void take(long now, byte[] body) {
        int number = received.getAndIncrement();
        if (number < count) {
            late[number] = now - Long.parseLong(new String(body, 0, 13, StandardCharsets.US_ASCII));
        }
        if (noted.incrementAndGet() == count) {
            all.countDown();
        }
    }

    private void reportLateness() {
        double[] sorted = Arrays.copyOf(late, Math.min(received.get(), count));
        Arrays.sort(sorted);
        report("\"received\": %d, \"early\": %d, \"p50\": %f, \"p99\": %f",
                received.get(),
                Arrays.stream(sorted).filter(by -> by < 0).count(),
                sorted[sorted.length / 2],
                sorted[sorted.length * 99 / 100]);
    }

    private static void report(String format, Object... values) {
        System.out.println("{" + String.format(format, values) + "}");
    }
}
