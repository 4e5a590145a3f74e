import java.io.Closeable;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

/**
 * Curator's queues, with a lock path, beside recipes/queue: puts items, then consumes what there is
 * until standard input ends, and names each item on a line. Some fail at first and are put back.
 */
public final class QueuePeer {
    private static final class Text implements QueueSerializer<String> {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        String kind = args[1];
        String path = args[2];
        int count = Integer.parseInt(args[3]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], 4000, 4000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        Set<String> failed = Collections.newSetFromMap(new ConcurrentHashMap<>());
        QueueConsumer<String> consumer =
                new QueueConsumer<String>() {
                    @Override
                    public void consumeMessage(String item) throws Exception {
                        if (item.endsWith("7") && failed.add(item)) {
                            throw new Exception("try again");
                        }
                        say("took " + item);
                    }

                    @Override
                    public void stateChanged(CuratorFramework client, ConnectionState state) {}
                };
        QueueBuilder<String> builder =
                QueueBuilder.builder(client, consumer, new Text(), path)
                        .lockPath(path + "-claims")
                        .putInBackground(false);
        Closeable queue;
        if (kind.equals("priority")) {
            DistributedPriorityQueue<String> q = builder.buildPriorityQueue(8);
            q.start();
            for (int i = 0; i < count; i++) {
                q.put("peer-" + i, i % 5 - 2);
            }
            queue = q;
        } else if (kind.equals("delay")) {
            DistributedDelayQueue<String> q = builder.buildDelayQueue();
            q.start();
            for (int i = 0; i < count; i++) {
                q.put("peer-" + i, System.currentTimeMillis() + 20 * (i % 50));
            }
            queue = q;
        } else {
            DistributedQueue<String> q = builder.buildQueue();
            q.start();
            for (int i = 0; i < count; i++) {
                q.put("peer-" + i);
            }
            queue = q;
        }
        say("ready");
        while (System.in.read() >= 0) {}
        queue.close();
        client.close();
        System.exit(0);
    }
}
