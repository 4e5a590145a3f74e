import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryOneTime;

/** Curator's LeaderLatch as a contestant; peer.go says what the lines mean. */
public final class CuratorPeer {
    private final String address;
    private final int timeoutMillis;
    private final Map<Integer, CuratorFramework> clients = new ConcurrentHashMap<>();
    private final Map<Integer, LeaderLatch> latches = new ConcurrentHashMap<>();

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
            Long answer;
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
