import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Works off a queue. A job that fails is put at the end of the queue, without a delay or a limit. */
public class Queue {
    static void work(byte[] job) {
        System.out.println("working on " + new String(job));
    }

    static void awaitStop() throws Exception {
        while (System.in.read() >= 0) {
        }
    }

    public static void main(String[] args) throws Exception {
        String path = args[1];
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new ExponentialBackoffRetry(100, 10));
        client.start();
        // begin
        QueueConsumer<byte[]> consumer = new QueueConsumer<byte[]>() {
            public void consumeMessage(byte[] job) {
                work(job);
            }

            public void stateChanged(CuratorFramework c, ConnectionState state) {
            }
        };
        QueueSerializer<byte[]> bytes = new QueueSerializer<byte[]>() {
            public byte[] serialize(byte[] job) {
                return job;
            }

            public byte[] deserialize(byte[] job) {
                return job;
            }
        };
        QueueBuilder<byte[]> builder = QueueBuilder.builder(client, consumer, bytes, path).lockPath(path + "-claims");
        try (DistributedQueue<byte[]> jobs = builder.buildQueue()) {
            jobs.start();
            awaitStop();
        }
        // end
        client.close();
    }
}
