import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
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

/** Curator's recipes, as peer_test.go asks for them, each command on a thread of its own. */
public final class CuratorPeer {
    private static final RetryNTimes RETRY = new RetryNTimes(1000, 5);

    private final String oracle;
    private final CuratorFramework[] clients = new CuratorFramework[2];
    private final Map<String, AutoCloseable> open = new ConcurrentHashMap<>();

    private CuratorPeer(String address, String oracle) throws Exception {
        this.oracle = oracle;
        for (int i = 0; i < clients.length; i++) {
            clients[i] = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(10000)
                .connectionTimeoutMs(10000).retryPolicy(new RetryNTimes(50, 100)).build();
            clients[i].start();
            if (!clients[i].blockUntilConnected(30, TimeUnit.SECONDS)) throw new IOException("no session");
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** One who tells the oracle what it does. */
    private final class Visitor implements AutoCloseable {
        private final Socket socket;
        private final BufferedReader in;
        private final PrintStream out;

        Visitor() throws IOException {
            String[] hostPort = oracle.split(":");
            socket = new Socket(hostPort[0], Integer.parseInt(hostPort[1]));
            socket.setTcpNoDelay(true);
            in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            out = new PrintStream(socket.getOutputStream(), true, "UTF-8");
        }

        synchronized void tell(String... words) throws IOException {
            out.print(String.join(" ", words) + "\n");
            out.flush();
            if (in.readLine() == null) throw new IOException("the oracle is gone");
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    private interface Step {
        void run() throws Exception;
    }

    private void contend(CuratorFramework c, String kind, String path, String room, String who, int rounds, int max)
            throws Exception {
        try (Visitor v = new Visitor()) {
            Step visit = () -> {
                v.tell("enter", room, who, kind.equals("read") ? "read" : "write");
                v.tell("leave", room, who);
            };
            for (int i = 0; i < rounds; i++) round(c, kind, path, room, who, max, v, visit);
        }
    }

    private void round(CuratorFramework c, String kind, String path, String room, String who, int max, Visitor v, Step visit)
            throws Exception {
        switch (kind) {
            case "mutex":
                locked(new InterProcessMutex(c, path), visit);
                break;
            case "write":
                locked(new InterProcessReadWriteLock(c, path).writeLock(), visit);
                break;
            case "read":
                locked(new InterProcessReadWriteLock(c, path).readLock(), visit);
                break;
            case "downgrade": {
                InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c, path);
                rw.writeLock().acquire();
                v.tell("enter", room, who, "write");
                rw.readLock().acquire();
                v.tell("become", room, who, "read");
                rw.writeLock().release();
                v.tell("stay", room, who);
                v.tell("leave", room, who);
                rw.readLock().release();
                break;
            }
            case "semaphore": {
                InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, path, max);
                Lease lease = s.acquire();
                try {
                    visit.run();
                } finally {
                    s.returnLease(lease);
                }
                break;
            }
            case "latch": {
                LeaderLatch latch = new LeaderLatch(c, path, who);
                latch.start();
                try {
                    latch.await();
                    visit.run();
                } finally {
                    latch.close();
                }
                break;
            }
            case "selector":
                select(c, path, visit);
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static void locked(InterProcessMutex mutex, Step visit) throws Exception {
        mutex.acquire();
        try {
            visit.run();
        } finally {
            mutex.release();
        }
    }

    private static void select(CuratorFramework c, String path, Step visit) throws Exception {
        CountDownLatch over = new CountDownLatch(1);
        Exception[] failed = new Exception[1];
        LeaderSelector selector = new LeaderSelector(c, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) {
                try {
                    visit.run();
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

    private void consume(CuratorFramework c, String handle, String path, String claims, String room, String who)
            throws Exception {
        Visitor v = new Visitor();
        QueueConsumer<String> consumer = new QueueConsumer<String>() {
            @Override
            public void consumeMessage(String item) throws Exception {
                v.tell("took", room, who, item);
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

    /** Says what a cache of the service has, whenever that changes. */
    private void watch(CuratorFramework c, String handle, String base, String name) throws Exception {
        ServiceDiscovery<String> d = discovery(c, base);
        ServiceCache<String> cache = d.serviceCacheBuilder().name(name).build();
        cache.addListener(new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                say(handle + " changed " + describe(cache.getInstances()));
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

    private String obey(String[] w) throws Exception {
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
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = new ArrayList<>(Arrays.asList(line.split(" ")));
            String id = words.remove(0);
            Thread t = new Thread(() -> {
                try {
                    say(id + " ok " + peer.obey(words.toArray(new String[0])));
                } catch (Throwable e) {
                    e.printStackTrace();
                    say(id + " error " + e);
                }
            });
            t.setDaemon(true);
            t.start();
        }
        for (CuratorFramework c : peer.clients) c.close();
        Runtime.getRuntime().halt(0); // whatever threads still wait for
    }
}
