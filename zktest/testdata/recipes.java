import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.atomic.*;
import org.apache.curator.framework.recipes.barriers.*;
import org.apache.curator.framework.recipes.cache.*;
import org.apache.curator.framework.recipes.leader.*;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.retry.*;
import org.apache.zookeeper.CreateMode;

/** Runs Curator's recipes with the server at the first argument, and prints a line for each step. */
public class recipes {
    static final Scanner in = new Scanner(System.in);
    static String addr;

    static synchronized void say(String s) {
        System.out.println(s);
        System.out.flush();
    }

    static CuratorFramework client() throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.builder().connectString(addr)
            .sessionTimeoutMs(10000).connectionTimeoutMs(5000).retryPolicy(new RetryNTimes(50, 100)).build();
        c.start();
        c.blockUntilConnected();
        return c;
    }

    /** Waits until the test sends the line. */
    static void await(String word) {
        String line = in.nextLine();
        if (!line.equals(word)) throw new IllegalStateException("received " + line + " instead of " + word);
    }

    public static void main(String[] args) throws Exception {
        addr = args[0];
        List<CuratorFramework> c = new ArrayList<>();
        for (int i = 0; i < 3; i++) c.add(client());
        mutex(c);
        latch(c);
        cache(c.get(0));
        misc(c);
        for (CuratorFramework f : c) f.close();
        say("done");
        System.exit(0);
    }

    static void mutex(List<CuratorFramework> c) throws Exception {
        AtomicInteger holders = new AtomicInteger(), most = new AtomicInteger(), total = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (CuratorFramework f : c) {
            InterProcessMutex m = new InterProcessMutex(f, "/mutex");
            for (int k = 0; k < 2; k++) {
                Thread t = new Thread(() -> {
                    try {
                        for (int i = 0; i < 10; i++) {
                            m.acquire();
                            most.accumulateAndGet(holders.incrementAndGet(), Math::max);
                            total.incrementAndGet();
                            holders.decrementAndGet();
                            m.release();
                        }
                    } catch (Exception e) {
                        say("mutex failed: " + e);
                    }
                });
                t.start();
                threads.add(t);
            }
        }
        for (Thread t : threads) t.join();
        say("mutex acquired " + total + " by at most " + most);
        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(c.get(0), "/rw");
        InterProcessReadWriteLock rw2 = new InterProcessReadWriteLock(c.get(1), "/rw");
        rw.readLock().acquire();
        boolean read = rw2.readLock().acquire(1, TimeUnit.SECONDS);
        boolean write = rw2.writeLock().acquire(100, TimeUnit.MILLISECONDS);
        say("second reader " + read + " writer " + write);
        rw.readLock().release();
        rw2.readLock().release();
    }

    static void latch(List<CuratorFramework> c) throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (int i = 0; i < c.size(); i++) {
            LeaderLatch l = new LeaderLatch(c.get(i), "/latch", "id" + i);
            l.start();
            latches.add(l);
            // The candidates join in this order.
            while (l.getParticipants().size() < i + 1) Thread.sleep(10);
            if (i == 0) l.await();
        }
        say("leader " + latches.get(0).getLeader().getId() + " session " + c.get(0).getZookeeperClient().getZooKeeper().getSessionId());
        await("expired"); // the test has expired the leader's session
        int next = -1;
        while (next < 1) {
            for (int i = 1; i < 3; i++) if (latches.get(i).hasLeadership()) next = i;
            Thread.sleep(10);
        }
        say("leader id" + next);
        latches.get(next).close();
        int last = 3 - next;
        latches.get(last).await();
        // The first candidate joins again with a new session.
        while (latches.get(last).getParticipants().size() < 2) Thread.sleep(10);
        say("leader id" + last + " participants " + latches.get(last).getParticipants().size());
        latches.get(last).close();
        latches.get(0).await();
        say("leader id0 again");
        latches.get(0).close();
    }

    static void cache(CuratorFramework f) throws Exception {
        f.create().forPath("/cache");
        CuratorCache cache = CuratorCache.build(f, "/cache");
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        CountDownLatch ready = new CountDownLatch(1);
        cache.listenable().addListener(CuratorCacheListener.builder()
            .forAll((type, old, now) -> events.add(type + " " + (now != null ? now : old).getPath() + " "
                + new String((now != null ? now : old).getData())))
            .forInitialized(ready::countDown).build());
        cache.start();
        ready.await();
        events.clear();
        say("cache ready");
        for (int i = 0; i < 4; i++) {
            String e = events.poll(10, TimeUnit.SECONDS);
            say("event " + e);
        }
        say("cache dropped?");
        await("dropped"); // the test has changed the tree while the connections were closed
        String e = events.poll(20, TimeUnit.SECONDS);
        say("event " + e);
        say("cache size " + cache.size());
        cache.close();
    }

    static void misc(List<CuratorFramework> c) throws Exception {
        DistributedAtomicLong n = new DistributedAtomicLong(c.get(0), "/count", new RetryNTimes(10, 10));
        for (int i = 0; i < 5; i++) n.increment();
        say("count " + n.get().postValue());
        c.get(1).inTransaction().create().forPath("/tx").and().setData().forPath("/tx", "x".getBytes()).and()
            .create().forPath("/tx/a").and().commit();
        say("tx " + new String(c.get(2).getData().forPath("/tx")) + " " + c.get(2).getChildren().forPath("/tx"));
        String p = c.get(0).create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/tx/p-");
        say("protected " + p.replaceAll("_c_[0-9a-f-]{36}-", "_c_-"));
        c.get(0).create().withTtl(3600000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/ttl");
        c.get(0).create().creatingParentContainersIfNeeded().forPath("/box/a/b");
        say("stat " + c.get(0).checkExists().forPath("/box/a/b").getNumChildren());
        DistributedDoubleBarrier a = new DistributedDoubleBarrier(c.get(0), "/barrier", 2);
        DistributedDoubleBarrier b = new DistributedDoubleBarrier(c.get(1), "/barrier", 2);
        Thread t = new Thread(() -> { try { b.enter(); b.leave(); } catch (Exception e) { say("barrier failed " + e); } });
        t.start();
        a.enter();
        a.leave();
        t.join();
        say("barrier passed");
    }
}
