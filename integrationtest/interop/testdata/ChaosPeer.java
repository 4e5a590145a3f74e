import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

/**
 * Takes part in the election, the lock and the queue of TestChaos_HoldersDoNotOverlap until it is killed. The arguments are the
 * servers, the session timeout in milliseconds, the prefix of the paths, and the prefix of the files of records
 * (chaos_test.go describes a record).
 */
public class ChaosPeer {
    private static String files;
    private static final AtomicInteger items = new AtomicInteger();

    private interface Step {
        void run() throws Exception;
    }

    /** Writes the holds of one thread. */
    private static class Recorder {
        private final RandomAccessFile file;
        private long next;

        Recorder(String role) throws IOException {
            file = new RandomAccessFile(files + role, "rw");
        }

        synchronized void hold(String resource, BooleanSupplier holds, long millis) throws Exception {
            long at = next, first = 0, until = System.nanoTime() + millis * 1_000_000;
            while (true) {
                long before = System.nanoTime();
                if (!holds.getAsBoolean()) return;
                long after = System.nanoTime();
                if (first == 0) {
                    first = after;
                    next += 83;
                }
                file.seek(at);
                file.write(String.format(Locale.ROOT, "%-40s %20d %20d%n", resource, first, before).getBytes(StandardCharsets.UTF_8));
                if (after > until) return;
                Thread.sleep(2);
            }
        }
    }

    /** Shows the sequence number of its znode. */
    private static class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String sequence() {
            return getLockPath().substring(getLockPath().length() - 10);
        }
    }

    private static void repeat(Step step) {
        new Thread(() -> {
            while (true) {
                try {
                    step.run();
                } catch (Exception e) {
                    System.err.println(e);
                }
                try {
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }).start();
    }

    private static long between(long least, long most) {
        return ThreadLocalRandom.current().nextLong(least, most);
    }

    public static void main(String[] args) throws Exception {
        int timeout = Integer.parseInt(args[1]);
        String path = args[2];
        files = args[3];
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], timeout, timeout, new RetryForever(100));
        client.start();

        Recorder election = new Recorder("election");
        repeat(() -> {
            try (LeaderLatch latch = new LeaderLatch(client, path + "/election", "curator")) {
                latch.start();
                latch.await();
                election.hold("election", latch::hasLeadership, between(300, 2000));
            }
        });

        Recorder lock = new Recorder("lock");
        repeat(() -> {
            Mutex mutex = new Mutex(client, path + "/lock");
            mutex.acquire();
            try {
                lock.hold("lock/" + mutex.sequence(), mutex::isAcquiredInThisProcess, between(10, 300));
            } finally {
                mutex.release();
            }
        });

        QueueSerializer<String> text = new QueueSerializer<String>() {
            @Override
            public byte[] serialize(String item) {
                return item.getBytes(StandardCharsets.UTF_8);
            }

            @Override
            public String deserialize(byte[] bytes) {
                return new String(bytes, StandardCharsets.UTF_8);
            }
        };
        Recorder queue = new Recorder("queue");
        QueueConsumer<String> consumer = new QueueConsumer<String>() {
            @Override
            public void consumeMessage(String item) throws Exception {
                queue.hold(item, () -> true, between(1, 20));
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState state) {}
        };
        DistributedQueue<String> q =
                QueueBuilder.builder(client, consumer, text, path + "/queue").lockPath(path + "/queue-claims").buildQueue();
        q.start();
        repeat(() -> {
            q.put("item-java-" + ProcessHandle.current().pid() + "-" + items.incrementAndGet());
            TimeUnit.MILLISECONDS.sleep(100);
        });
        Thread.sleep(Long.MAX_VALUE);
    }
}
