import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
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

/** Curator's recipes as a contestant. process.go describes the commands. */
public final class CuratorPeer {
    private final String[] addresses;
    private final int timeoutMillis;
    private final Map<Integer, CuratorFramework> clients = new ConcurrentHashMap<>();
    private final Map<Integer, Candidate> candidates = new ConcurrentHashMap<>();
    private final AtomicInteger leaving = new AtomicInteger();
    private final Semaphore reported = new Semaphore(0);

    private CuratorPeer(String addresses, int timeoutMillis) {
        this.addresses = addresses.split(",");
        this.timeoutMillis = timeoutMillis;
    }

    private static synchronized void writeLine(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** A listener that is called by the thread that has learned of the leadership. */
    private abstract static class OnLeader implements LeaderLatchListener {
        @Override
        public void notLeader() {}
    }

    private Long connect(int session) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.builder()
                        .connectString(addresses[session % addresses.length])
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

    private Long timeJoin(int session, String path) throws Exception {
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

    /** A candidate at the head of the queue. */
    private interface Candidate {
        /** Leaves the queue, and returns the time just before it does so. */
        long leave() throws Exception;
    }

    private static void reportAcquired(int candidate, long at) {
        writeLine("acquired " + candidate + " " + at);
    }

    private boolean mustLeave() {
        return leaving.decrementAndGet() >= 0;
    }

    private void join(String recipe, int candidate, int session, String path) throws Exception {
        if (recipe.equals("mutex")) {
            joinMutex(candidate, session, path);
        } else {
            joinElection(candidate, session, path);
        }
    }

    private void joinElection(int candidate, int session, String path) throws Exception {
        LeaderLatch latch = new LeaderLatch(clients.get(session), path, "bench");
        latch.addListener(
                new OnLeader() {
                    @Override
                    public void isLeader() {
                        long at = System.nanoTime();
                        if (mustLeave()) {
                            candidates.remove(candidate);
                            try {
                                latch.close();
                            } catch (IOException e) {
                                writeLine("failed " + e);
                            }
                        }
                        reportAcquired(candidate, at);
                    }
                });
        candidates.put(
                candidate,
                () -> {
                    long at = System.nanoTime();
                    latch.close();
                    return at;
                });
        latch.start();
    }

    /** Starts a thread, because the thread that acquires the mutex must also release it. */
    private void joinMutex(int candidate, int session, String path) {
        CountDownLatch requested = new CountDownLatch(1);
        CompletableFuture<Long> released = new CompletableFuture<>();
        candidates.put(
                candidate,
                () -> {
                    requested.countDown();
                    return released.get();
                });
        InterProcessMutex mutex = new InterProcessMutex(clients.get(session), path);
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                mutex.acquire();
                                long acquired = System.nanoTime();
                                if (mustLeave()) {
                                    candidates.remove(candidate);
                                    mutex.release();
                                    reportAcquired(candidate, acquired);
                                    return;
                                }
                                reportAcquired(candidate, acquired);
                                requested.await();
                                long at = System.nanoTime();
                                mutex.release();
                                released.complete(at);
                            } catch (Exception e) {
                                released.completeExceptionally(e);
                                if (clients.containsKey(session)) {
                                    writeLine("failed " + e);
                                }
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }

    private Long leave(int candidate) throws Exception {
        return candidates.remove(candidate).leave();
    }

    /** The work of one session, which appends numbers to the response. */
    private interface SessionTask {
        void run(int session, StringBuilder response) throws Exception;
    }

    /** Runs the task for sessions 0 to n-1 in parallel, and concatenates the responses. */
    private static String runThreads(int n, SessionTask task) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(n);
        List<Future<StringBuilder>> responses = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int session = i;
            responses.add(
                    threads.submit(
                            () -> {
                                StringBuilder response = new StringBuilder();
                                task.run(session, response);
                                return response;
                            }));
        }
        threads.shutdown();
        StringBuilder all = new StringBuilder();
        for (Future<StringBuilder> response : responses) {
            all.append(response.get());
        }
        return all.toString();
    }

    private String contend(int n, int locks, String path, long held, long warmup, long length)
            throws Exception {
        long start = System.nanoTime();
        long end = start + warmup + length;
        String times =
                runThreads(
                        n,
                        (session, response) -> {
                            InterProcessMutex[] own = new InterProcessMutex[locks];
                            for (int i = 0; i < locks; i++) {
                                String lock = String.format("%s/item-%05d", path, i);
                                own[i] = new InterProcessMutex(clients.get(session), lock);
                            }
                            for (int next = session; System.nanoTime() < end; next++) {
                                own[next % locks].acquire();
                                long granted = System.nanoTime();
                                if (held > 0) {
                                    TimeUnit.NANOSECONDS.sleep(held);
                                }
                                long releasing = System.nanoTime();
                                own[next % locks].release();
                                response.append(' ').append(next % locks);
                                response.append(' ').append(granted);
                                response.append(' ').append(releasing);
                                response.append(' ').append(System.nanoTime());
                            }
                        });
        return start + times;
    }

    /** An operation that a session repeats. */
    private interface Operation {
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

    private String repeat(String operation, int n, String path, long warmup, long length)
            throws Exception {
        List<Operation> operations = new ArrayList<>();
        List<DistributedQueue<byte[]>> queues = new ArrayList<>();
        Semaphore consumed = new Semaphore(0);
        for (int session = 0; session < n; session++) {
            CuratorFramework client = clients.get(session);
            if (operation.equals("add")) {
                DistributedAtomicLong counter =
                        new DistributedAtomicLong(
                                client, path + "/counter", new RetryForever(1));
                operations.add(
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
            operations.add(
                    () -> {
                        queue.put(new byte[100]);
                        if (!consumed.tryAcquire(20, TimeUnit.SECONDS)) {
                            throw new IOException("an item was lost");
                        }
                    });
        }
        long start = System.nanoTime();
        long end = start + warmup + length;
        String times =
                runThreads(
                        n,
                        (session, response) -> {
                            while (System.nanoTime() < end) {
                                operations.get(session).run();
                                response.append(' ').append(System.nanoTime());
                            }
                        });
        for (DistributedQueue<byte[]> queue : queues) {
            queue.close();
        }
        return start + times;
    }

    /** Constructs a cache and waits until it is filled. */
    private CuratorCache openCache(int session, String path, boolean report) throws Exception {
        CountDownLatch filled = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(clients.get(session), path);
        cache.listenable()
                .addListener(
                        CuratorCacheListener.builder()
                                .forInitialized(filled::countDown)
                                .forChanges(
                                        (before, after) -> {
                                            if (report) {
                                                reported.release();
                                            }
                                        })
                                .build());
        cache.start();
        if (!filled.await(25, TimeUnit.SECONDS)) {
            throw new IOException("the cache is not filled");
        }
        return cache;
    }

    private Long fillCache(int session, String path, int n) throws Exception {
        long start = System.nanoTime();
        CuratorCache cache = openCache(session, path, false);
        long took = System.nanoTime() - start;
        int count = cache.size();
        cache.close();
        if (count != n + 1) {
            throw new IOException("the cache has " + count + " of " + (n + 1));
        }
        return took;
    }

    private Long writeCached(int session, String path) throws Exception {
        reported.drainPermits();
        long start = System.nanoTime();
        clients.get(session).setData().forPath(path + "/written", new byte[100]);
        if (!reported.tryAcquire(20, TimeUnit.SECONDS)) {
            throw new IOException("the cache does not report the write");
        }
        return System.nanoTime() - start;
    }

    private Long reset() throws Exception {
        candidates.clear();
        leaving.set(0);
        ExecutorService closing = Executors.newFixedThreadPool(16);
        for (int session : new ArrayList<>(clients.keySet())) {
            closing.execute(() -> disconnect(session));
        }
        closing.shutdown();
        closing.awaitTermination(25, TimeUnit.SECONDS);
        return null;
    }

    private void execute(String line) {
        String[] words = line.trim().split(" ");
        try {
            Object response;
            switch (words[0]) {
                case "connect":
                    response = connect(Integer.parseInt(words[1]));
                    break;
                case "disconnect":
                    response = disconnect(Integer.parseInt(words[1]));
                    break;
                case "time_join":
                    response = timeJoin(Integer.parseInt(words[1]), words[2]);
                    break;
                case "join":
                    join(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
                    return;
                case "leave":
                    response = leave(Integer.parseInt(words[1]));
                    break;
                case "contend":
                    response =
                            contend(
                                    Integer.parseInt(words[1]),
                                    Integer.parseInt(words[2]),
                                    words[3],
                                    Long.parseLong(words[4]),
                                    Long.parseLong(words[5]),
                                    Long.parseLong(words[6]));
                    break;
                case "repeat":
                    response =
                            repeat(
                                    words[1],
                                    Integer.parseInt(words[2]),
                                    words[3],
                                    Long.parseLong(words[4]),
                                    Long.parseLong(words[5]));
                    break;
                case "fill_cache":
                    response =
                            fillCache(
                                    Integer.parseInt(words[1]),
                                    words[2],
                                    Integer.parseInt(words[3]));
                    break;
                case "watch_cache":
                    openCache(Integer.parseInt(words[1]), words[2], true);
                    response = null;
                    break;
                case "write_cached":
                    response = writeCached(Integer.parseInt(words[1]), words[2]);
                    break;
                case "leave_next":
                    leaving.set(Integer.parseInt(words[1]));
                    response = null;
                    break;
                case "reset":
                    response = reset();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            writeLine(response == null ? "ok" : "ok " + response);
        } catch (Exception e) {
            writeLine((words[0].equals("join") ? "failed " : "error ") + e);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorPeer peer = new CuratorPeer(args[0], (int) (1000 * Double.parseDouble(args[1])));
        writeLine("ready on Java " + System.getProperty("java.version"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            peer.execute(line);
        }
        Runtime.getRuntime().halt(0); // threads may still wait for locks
    }
}
