import java.util.*;
import org.apache.curator.framework.*;
import org.apache.curator.retry.*;

/**
 * Runs Curator in its default configuration with the ensemble whose addresses are the first
 * argument. Its EnsembleTracker reads /zookeeper/config, and Curator then connects to the servers
 * that are listed there.
 */
public class tracker {
    static synchronized void say(String s) {
        System.out.println(s);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework c = CuratorFrameworkFactory.builder().connectString(args[0])
            .sessionTimeoutMs(10000).connectionTimeoutMs(5000).retryPolicy(new RetryNTimes(50, 100)).build();
        c.start();
        c.blockUntilConnected();
        String before = args[0];
        while (c.getZookeeperClient().getCurrentConnectionString().equals(before)) Thread.sleep(10);
        Set<String> tracked = new TreeSet<>(Arrays.asList(c.getZookeeperClient().getCurrentConnectionString().split(",")));
        say("tracks " + tracked.equals(new TreeSet<>(Arrays.asList(before.split(",")))));
        say("session " + c.getZookeeperClient().getZooKeeper().getSessionId());
        new Scanner(System.in).nextLine(); // the test has stopped its server
        c.create().forPath("/after", new byte[0]);
        say("done");
        c.close();
        System.exit(0);
    }
}
