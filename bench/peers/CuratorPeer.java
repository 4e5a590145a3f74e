import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.retry.RetryOneTime;

/** Curator's recipes as a contestant; peer.go says what the lines mean. */
public final class CuratorPeer {
    private final String address;
    private final int timeoutMillis;
    private final Map<Integer, CuratorFramework> clients = new ConcurrentHashMap<>();
    private final Map<Integer, LeaderLatch> latches = new ConcurrentHashMap<>();
    private final Semaphore told = new Semaphore(0);

    private CuratorPeer(String address, int timeoutMillis) {
        this.address = address;
        this.timeoutMillis = timeoutMillis;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Calls back on the thread that has learned of the leadership. */
    private abstract static class OnLeader implements LeaderLatchListener {
        @Override
        public void notLeader() {}
    }

    private Long connect(int session) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(address)
                        .sessionTimeoutMs(timeoutMillis)
                        .connectionTimeoutMs(timeoutMillis)
                        .retryPolicy(new RetryOneTime(100))
                        .build();
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            client.close();
            throw new IOException("no session within 30 s");
        }
        clients.put(session, client);
        return null;
    }

    private Long disconnect(int session) {
        CuratorFramework client = clients.remove(session);
        long at = System.nanoTime();
        client.close();
        return at;
    }

    private Long join(int session, String path) throws Exception {
        CuratorFramework client = clients.get(session);
        CountDownLatch leading = new CountDownLatch(1);
        long[] led = new long[1];
        long start = System.nanoTime();
        LeaderLatch latch = new LeaderLatch(client, path, "bench");
        latch.addListener(
                new OnLeader() {
                    @Override
                    public void isLeader() {
                        led[0] = System.nanoTime();
                        leading.countDown();
                    }
                });
        latch.start();
        boolean done = leading.await(20, TimeUnit.SECONDS);
        latch.close();
        if (!done) {
            throw new IOException("no leadership within 20 s");
        }
        return led[0] - start;
    }

    private void stand(int candidate, int session, String path) throws Exception {
        LeaderLatch latch = new LeaderLatch(clients.get(session), path, "bench");
        latch.addListener(
                new OnLeader() {
                    @Override
                    public void isLeader() {
                        say("leads " + candidate + " " + System.nanoTime());
                    }
                });
        latches.put(candidate, latch);
        latch.start();
    }

    private Long leave(int candidate) throws Exception {
        LeaderLatch latch = latches.remove(candidate);
        long at = System.nanoTime();
        latch.close();
        return at;
    }

    /** What one of several does at a time. */
    private interface Part {
        void run(int session, StringBuilder answer) throws Exception;
    }

    /** Has sessions 0 to n-1 do their parts at once, and joins their answers. */
    private static String together(int n, Part part) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(n);
        List<Future<StringBuilder>> parts = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int session = i;
            parts.add(
                    threads.submit(
                            () -> {
                                StringBuilder answer = new StringBuilder();
                                part.run(session, answer);
                                return answer;
                            }));
        }
        threads.shutdown();
        StringBuilder all = new StringBuilder();
        for (Future<StringBuilder> one : parts) {
            all.append(one.get());
        }
        return all.toString();
    }

    private String contend(int n, String path, long lead, long length) throws Exception {
        long start = System.nanoTime();
        long end = start + lead + length;
        String times =
                together(
                        n,
                        (session, answer) -> {
                            InterProcessMutex mutex =
                                    new InterProcessMutex(clients.get(session), path);
                            while (System.nanoTime() < end) {
                                mutex.acquire();
                                long granted = System.nanoTime();
                                long releasing = System.nanoTime();
                                mutex.release();
                                answer.append(' ').append(granted);
                                answer.append(' ').append(releasing);
                                answer.append(' ').append(System.nanoTime());
                            }
                        });
        return start + times;
    }

    /** What a session does over and over. */
    private interface Once {
        void run() throws Exception;
    }

    private static final class Bytes implements QueueSerializer<byte[]> {
        @Override
        public byte[] serialize(byte[] item) {
            return item;
        }

        @Override
        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    }

    private String work(String kind, int n, String path, long lead, long length)
            throws Exception {
        List<Once> onces = new ArrayList<>();
        List<DistributedQueue<byte[]>> queues = new ArrayList<>();
        Semaphore consumed = new Semaphore(0);
        for (int session = 0; session < n; session++) {
            CuratorFramework client = clients.get(session);
            if (kind.equals("add")) {
                DistributedAtomicLong counter =
                        new DistributedAtomicLong(
                                client, path + "/counter", new RetryForever(1));
                onces.add(
                        () -> {
                            while (!counter.increment().succeeded()) {}
                        });
                continue;
            }
            QueueConsumer<byte[]> consumer =
                    new QueueConsumer<byte[]>() {
                        @Override
                        public void consumeMessage(byte[] item) {
                            consumed.release();
                        }

                        @Override
                        public void stateChanged(CuratorFramework client, ConnectionState is) {}
                    };
            DistributedQueue<byte[]> queue =
                    QueueBuilder.builder(client, consumer, new Bytes(), path + "/items")
                            .lockPath(path + "/locks")
                            .buildQueue();
            queue.start();
            queues.add(queue);
            onces.add(
                    () -> {
                        queue.put(new byte[100]);
                        if (!consumed.tryAcquire(20, TimeUnit.SECONDS)) {
                            throw new IOException("an item was lost");
                        }
                    });
        }
        long start = System.nanoTime();
        long end = start + lead + length;
        String times =
                together(
                        n,
                        (session, answer) -> {
                            while (System.nanoTime() < end) {
                                onces.get(session).run();
                                answer.append(' ').append(System.nanoTime());
                            }
                        });
        for (DistributedQueue<byte[]> queue : queues) {
            queue.close();
        }
        return start + times;
    }

    /** Makes a cache and waits until it is filled. */
    private CuratorCache cache(int session, String path, boolean tell) throws Exception {
        CountDownLatch filled = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(clients.get(session), path);
        cache.listenable()
                .addListener(
                        CuratorCacheListener.builder()
                                .forInitialized(filled::countDown)
                                .forChanges(
                                        (before, after) -> {
                                            if (tell) {
                                                told.release();
                                            }
                                        })
                                .build());
        cache.start();
        if (!filled.await(25, TimeUnit.SECONDS)) {
            throw new IOException("a cache is not filled");
        }
        return cache;
    }

    private Long fill(int session, String path, int n) throws Exception {
        long start = System.nanoTime();
        CuratorCache cache = cache(session, path, false);
        long took = System.nanoTime() - start;
        int count = cache.size();
        cache.close();
        if (count != n + 1) {
            throw new IOException("the cache has " + count + " of " + (n + 1));
        }
        return took;
    }

    private Long write(int session, String path) throws Exception {
        told.drainPermits();
        long start = System.nanoTime();
        clients.get(session).setData().forPath(path + "/written", new byte[100]);
        if (!told.tryAcquire(20, TimeUnit.SECONDS)) {
            throw new IOException("a cache does not tell of a write");
        }
        return System.nanoTime() - start;
    }

    private Long reset() throws Exception {
        latches.clear();
        ExecutorService closing = Executors.newFixedThreadPool(16);
        for (int session : new ArrayList<>(clients.keySet())) {
            closing.execute(() -> disconnect(session));
        }
        closing.shutdown();
        closing.awaitTermination(25, TimeUnit.SECONDS);
        return null;
    }

    private void obey(String line) {
        String[] words = line.trim().split(" ");
        try {
            Object answer;
            switch (words[0]) {
                case "connect":
                    answer = connect(Integer.parseInt(words[1]));
                    break;
                case "disconnect":
                    answer = disconnect(Integer.parseInt(words[1]));
                    break;
                case "join":
                    answer = join(Integer.parseInt(words[1]), words[2]);
                    break;
                case "stand":
                    stand(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3]);
                    return;
                case "leave":
                    answer = leave(Integer.parseInt(words[1]));
                    break;
                case "contend":
                    answer =
                            contend(
                                    Integer.parseInt(words[1]),
                                    words[2],
                                    Long.parseLong(words[3]),
                                    Long.parseLong(words[4]));
                    break;
                case "work":
                    answer =
                            work(
                                    words[1],
                                    Integer.parseInt(words[2]),
                                    words[3],
                                    Long.parseLong(words[4]),
                                    Long.parseLong(words[5]));
                    break;
                case "fill":
                    answer =
                            fill(
                                    Integer.parseInt(words[1]),
                                    words[2],
                                    Integer.parseInt(words[3]));
                    break;
                case "watch":
                    cache(Integer.parseInt(words[1]), words[2], true);
                    answer = null;
                    break;
                case "write":
                    answer = write(Integer.parseInt(words[1]), words[2]);
                    break;
                case "reset":
                    answer = reset();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            say(answer == null ? "ok" : "ok " + answer);
        } catch (Exception e) {
            say((words[0].equals("stand") ? "failed " : "error ") + e);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorPeer peer = new CuratorPeer(args[0], (int) (1000 * Double.parseDouble(args[1])));
        say("ready on Java " + System.getProperty("java.version"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            peer.obey(line);
        }
        Runtime.getRuntime().halt(0); // whatever threads still wait for
    }
}
