import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.details.ServiceCacheListener;

/** Executes the commands of peer_test.go with Curator's recipes, each in a separate thread. */
public final class CuratorPeer {
    private static final RetryNTimes RETRY = new RetryNTimes(1000, 5);

    private final String monitor;
    private final CuratorFramework[] clients = new CuratorFramework[2];
    private final Map<String, AutoCloseable> open = new ConcurrentHashMap<>();

    private CuratorPeer(String address, String monitor) throws Exception {
        this.monitor = monitor;
        for (int i = 0; i < clients.length; i++) {
            clients[i] = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(10000)
                .connectionTimeoutMs(10000).retryPolicy(new RetryNTimes(50, 100)).build();
            clients[i].start();
            if (!clients[i].blockUntilConnected(30, TimeUnit.SECONDS)) throw new IOException("no session");
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** A connection to the monitor. */
    private final class MonitorClient implements AutoCloseable {
        private final Socket socket;
        private final BufferedReader in;
        private final PrintStream out;

        MonitorClient() throws IOException {
            String[] hostPort = monitor.split(":");
            socket = new Socket(hostPort[0], Integer.parseInt(hostPort[1]));
            socket.setTcpNoDelay(true);
            in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            out = new PrintStream(socket.getOutputStream(), true, "UTF-8");
        }

        synchronized void report(String... words) throws IOException {
            out.print(String.join(" ", words) + "\n");
            out.flush();
            if (in.readLine() == null) throw new IOException("the monitor has closed the connection");
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private void contend(CuratorFramework c, String kind, String path, String resource, String name, int rounds, int max)
            throws Exception {
        try (MonitorClient v = new MonitorClient()) {
            Step hold = () -> {
                v.report("acquire", resource, name, kind.equals("read") ? "read" : "write");
                v.report("release", resource, name);
            };
            for (int i = 0; i < rounds; i++) round(c, kind, path, resource, name, max, v, hold);
        }
    }

    private void round(CuratorFramework c, String kind, String path, String resource, String name, int max, MonitorClient v, Step hold)
            throws Exception {
        switch (kind) {
            case "mutex":
                locked(new InterProcessMutex(c, path), hold);
                break;
            case "write":
                locked(new InterProcessReadWriteLock(c, path).writeLock(), hold);
                break;
            case "read":
                locked(new InterProcessReadWriteLock(c, path).readLock(), hold);
                break;
            case "downgrade": {
                InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c, path);
                rw.writeLock().acquire();
                v.report("acquire", resource, name, "write");
                rw.readLock().acquire();
                v.report("change", resource, name, "read");
                rw.writeLock().release();
                v.report("hold", resource, name);
                v.report("release", resource, name);
                rw.readLock().release();
                break;
            }
            case "semaphore": {
                InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, path, max);
                Lease lease = s.acquire();
                try {
                    hold.run();
                } finally {
                    s.returnLease(lease);
                }
                break;
            }
            case "counted": {
                SharedCount limit = new SharedCount(c, path + "-limit", max);
                limit.start();
                try {
                    InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, path, limit);
                    Lease lease = s.acquire();
                    try {
                        hold.run();
                    } finally {
                        s.returnLease(lease);
                    }
                } finally {
                    limit.close();
                }
                break;
            }
            case "latch": {
                LeaderLatch latch = new LeaderLatch(c, path, name);
                latch.start();
                try {
                    latch.await();
                    hold.run();
                } finally {
                    latch.close();
                }
                break;
            }
            case "selector":
                select(c, path, hold);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static void locked(InterProcessMutex mutex, Step hold) throws Exception {
        mutex.acquire();
        try {
            hold.run();
        } finally {
            mutex.release();
        }
    }

    private static void select(CuratorFramework c, String path, Step hold) throws Exception {
        CountDownLatch over = new CountDownLatch(1);
        Exception[] failed = new Exception[1];
        LeaderSelector selector = new LeaderSelector(c, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) {
                try {
                    hold.run();
                } catch (Exception e) {
                    failed[0] = e;
                }
                over.countDown();
            }
        });
        selector.start();
        over.await();
        selector.close();
        if (failed[0] != null) throw failed[0];
    }

    private static void add(CuratorFramework c, String kind, String path, int times, int delta) throws Exception {
        switch (kind) {
            case "long": {
                DistributedAtomicLong n = new DistributedAtomicLong(c, path, RETRY);
                for (int i = 0; i < times; i++) check(n.add((long) delta));
                break;
            }
            case "int": {
                DistributedAtomicInteger n = new DistributedAtomicInteger(c, path, RETRY);
                for (int i = 0; i < times; i++) check(n.add(delta));
                break;
            }
            case "shared":
                try (SharedCount n = new SharedCount(c, path, 0)) {
                    n.start();
                    for (int i = 0; i < times; ) {
                        if (n.trySetCount(n.getVersionedValue(), n.getCount() + delta)) i++;
                    }
                }
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static void check(AtomicValue<?> v) {
        if (!v.succeeded()) throw new IllegalStateException("not added");
    }

    private static String get(CuratorFramework c, String kind, String path) throws Exception {
        switch (kind) {
            case "long":
                return "" + new DistributedAtomicLong(c, path, RETRY).get().postValue();
            case "int":
                return "" + new DistributedAtomicInteger(c, path, RETRY).get().postValue();
            case "shared":
                try (SharedCount n = new SharedCount(c, path, 0)) {
                    n.start();
                    return "" + n.getCount();
                }
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static void barrier(CuratorFramework c, String what, String path) throws Exception {
        DistributedBarrier b = new DistributedBarrier(c, path);
        switch (what) {
            case "set":
                b.setBarrier();
                break;
            case "remove":
                b.removeBarrier();
                break;
            case "wait":
                b.waitOnBarrier();
                break;
            default:
                throw new IllegalArgumentException(what);
        }
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    private static void put(CuratorFramework c, String path, List<String> items) throws Exception {
        try (DistributedQueue<String> q = QueueBuilder.builder(c, null, TEXT, path).buildQueue()) {
            q.start();
            for (String item : items) q.put(item);
            if (!q.flushPuts(20, TimeUnit.SECONDS)) throw new IOException("not put");
        }
    }

    private void consume(CuratorFramework c, String handle, String path, String claims, String resource, String name)
            throws Exception {
        MonitorClient v = new MonitorClient();
        QueueConsumer<String> consumer = new QueueConsumer<String>() {
            @Override
            public void consumeMessage(String item) throws Exception {
                v.report("take", resource, name, item);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        DistributedQueue<String> q = QueueBuilder.builder(c, consumer, TEXT, path).lockPath(claims).buildQueue();
        q.start();
        keep(handle, () -> {
            q.close();
            v.close();
        });
    }

    private interface Put {
        void put(int i) throws Exception;
    }

    /**
     * Puts items "curator-0" and so on, and consumes items of all participants. An item that ends with 7
     * fails at first, and is put back.
     */
    private void share(CuratorFramework c, String handle, String kind, String path, String claims, String resource,
            String name, int count) throws Exception {
        MonitorClient v = new MonitorClient();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        QueueConsumer<String> consumer = new QueueConsumer<String>() {
            @Override
            public void consumeMessage(String item) throws Exception {
                if (item.endsWith("7") && failed.add(item)) throw new Exception("try again");
                v.report("take", resource, name, item);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        QueueBuilder<String> builder = QueueBuilder.builder(c, consumer, TEXT, path).lockPath(claims).putInBackground(false);
        Closeable queue;
        Put put;
        switch (kind) {
            case "priority": {
                DistributedPriorityQueue<String> q = builder.buildPriorityQueue(8);
                q.start();
                queue = q;
                put = i -> q.put(name + "-" + i, i % 5 - 2);
                break;
            }
            case "delay": {
                DistributedDelayQueue<String> q = builder.buildDelayQueue();
                q.start();
                queue = q;
                put = i -> q.put(name + "-" + i, System.currentTimeMillis() + 20 * (i % 50));
                break;
            }
            default: {
                DistributedQueue<String> q = builder.buildQueue();
                q.start();
                queue = q;
                put = i -> q.put(name + "-" + i);
            }
        }
        keep(handle, () -> {
            queue.close();
            v.close();
        });
        for (int i = 0; i < count; i++) put.put(i);
    }

    private static ServiceDiscovery<String> discovery(CuratorFramework c, String base) throws Exception {
        ServiceDiscovery<String> d = ServiceDiscoveryBuilder.builder(String.class).client(c).basePath(base).build();
        d.start();
        return d;
    }

    private void register(CuratorFramework c, String handle, String base, String name, String id, int port)
            throws Exception {
        ServiceDiscovery<String> d = discovery(c, base);
        d.registerService(ServiceInstance.<String>builder().name(name).id(id).address("java.example").port(port)
            .payload("of Java").build());
        keep(handle, d);
    }

    private static String describe(Iterable<ServiceInstance<String>> found) {
        TreeSet<String> all = new TreeSet<>();
        for (ServiceInstance<String> i : found) {
            all.add(i.getId() + "@" + i.getAddress() + ":" + i.getPort() + "(" + i.getPayload() + ")");
        }
        return String.join(",", all);
    }

    private static String discover(CuratorFramework c, String base, String name) throws Exception {
        try (ServiceDiscovery<String> d = discovery(c, base)) {
            return describe(d.queryForInstances(name));
        }
    }

    /** Prints the instances in a cache of the service whenever they change. */
    private void watch(CuratorFramework c, String handle, String base, String name) throws Exception {
        ServiceDiscovery<String> d = discovery(c, base);
        ServiceCache<String> cache = d.serviceCacheBuilder().name(name).build();
        cache.addListener(new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                print(handle + " changed " + describe(cache.getInstances()));
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        });
        cache.start();
        keep(handle, () -> {
            cache.close();
            d.close();
        });
    }

    private void join(CuratorFramework c, String handle, String path, String id, String data) {
        GroupMember m = new GroupMember(c, path, id, data.getBytes(StandardCharsets.UTF_8));
        m.start();
        keep(handle, m);
    }

    private String members(String handle) {
        TreeSet<String> all = new TreeSet<>();
        ((GroupMember) open.get(handle)).getCurrentMembers()
            .forEach((id, data) -> all.add(id + "(" + new String(data, StandardCharsets.UTF_8) + ")"));
        return String.join(",", all);
    }

    private void keep(String handle, AutoCloseable what) {
        open.put(handle, what);
    }

    private String execute(String[] w) throws Exception {
        CuratorFramework c = clients[Integer.parseInt(w[1])];
        switch (w[0]) {
            case "contend":
                contend(c, w[2], w[3], w[4], w[5], Integer.parseInt(w[6]), Integer.parseInt(w[7]));
                return "";
            case "add":
                add(c, w[2], w[3], Integer.parseInt(w[4]), Integer.parseInt(w[5]));
                return "";
            case "get":
                return get(c, w[2], w[3]);
            case "barrier":
                barrier(c, w[2], w[3]);
                return "";
            case "put":
                put(c, w[2], Arrays.asList(w).subList(3, w.length));
                return "";
            case "consume":
                consume(c, w[2], w[3], w[4], w[5], w[6]);
                return "";
            case "share":
                share(c, w[2], w[3], w[4], w[5], w[6], w[7], Integer.parseInt(w[8]));
                return "";
            case "register":
                register(c, w[2], w[3], w[4], w[5], Integer.parseInt(w[6]));
                return "";
            case "discover":
                return discover(c, w[2], w[3]);
            case "watch":
                watch(c, w[2], w[3], w[4]);
                return "";
            case "join":
                join(c, w[2], w[3], w[4], w[5]);
                return "";
            case "members":
                return members(w[2]);
            case "close":
                open.remove(w[2]).close();
                return "";
            default:
                throw new IllegalArgumentException(w[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorPeer peer = new CuratorPeer(args[0], args[1]);
        print("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = new ArrayList<>(Arrays.asList(line.split(" ")));
            String id = words.remove(0);
            Thread t = new Thread(() -> {
                try {
                    print(id + " ok " + peer.execute(words.toArray(new String[0])));
                } catch (Throwable e) {
                    e.printStackTrace();
                    print(id + " error " + e);
                }
            });
            t.setDaemon(true);
            t.start();
        }
        for (CuratorFramework c : peer.clients) c.close();
        Runtime.getRuntime().halt(0); // even if threads still wait
    }
}
