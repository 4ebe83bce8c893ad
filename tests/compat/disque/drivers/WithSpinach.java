// A worker as a user of spinach writes it; what it sees goes to stdout as JSON.

import biz.paluch.spinach.DisqueClient;
import biz.paluch.spinach.api.AddJobArgs;
import biz.paluch.spinach.api.Job;
import biz.paluch.spinach.api.sync.DisqueCommands;
import java.util.List;
import java.util.concurrent.TimeUnit;

public class WithSpinach {
    public static void main(String[] words) {
        String queue = words[1];
        DisqueClient client = new DisqueClient("127.0.0.1", Integer.parseInt(words[0]));
        DisqueCommands<String, String> disque = client.connect().sync();
        AddJobArgs args = AddJobArgs.builder().retry(30, TimeUnit.SECONDS).ttl(600, TimeUnit.SECONDS).build();
        String first = disque.addjob(queue, "one", 5, TimeUnit.SECONDS, args);
        String second = disque.addjob(queue, "two", 5, TimeUnit.SECONDS);
        long length = disque.qlen(queue);
        String peeked = disque.qpeek(queue, 1).get(0).getBody();
        Job<String, String> job = disque.getjob(5, TimeUnit.SECONDS, queue);
        boolean same = job.getId().equals(first) && job.getQueue().equals(queue);
        long working = disque.working(first);
        long nacked = disque.nack(first);
        List<Job<String, String>> both = disque.getjobs(5, TimeUnit.SECONDS, 2, queue);
        int shown = disque.show(first).size();
        long acknowledged = disque.ackjob(first, second);
        boolean scanned = disque.qscan().getKeys().contains(queue);
        int jobs = disque.jscan().getKeys().contains(first) ? 1 : 0;
        System.out.printf(
            "{\"length\": %d, \"peeked\": \"%s\", \"got\": [%b, \"%s\"], \"working\": %d, \"nacked\": %d,"
                + " \"both\": %d, \"shown\": %d, \"acknowledged\": %d, \"scanned\": %b, \"jobs\": %d,"
                + " \"nodes\": %d, \"ping\": \"%s\"}%n",
            length, peeked, same, job.getBody(), working, nacked, both.size(), shown, acknowledged,
            scanned, jobs, disque.hello().size(), disque.ping());
        client.shutdown();
        System.exit(0);
    }
}
