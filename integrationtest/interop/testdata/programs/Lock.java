import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs a job under a lock, and interrupts it when the lock may be lost. */
public class Lock {
    static void backup() {
        System.out.println("working");
    }

    public static void main(String[] args) throws Exception {
        String path = args[1];
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new ExponentialBackoffRetry(100, 10));
        client.start();
        // begin
        InterProcessMutex lock = new InterProcessMutex(client, path);
        Thread worker = Thread.currentThread();
        ConnectionStateListener listener = (c, state) -> {
            if (!state.isConnected()) {
                worker.interrupt();
            }
        };
        lock.acquire();
        client.getConnectionStateListenable().addListener(listener);
        try {
            backup();
        } finally {
            client.getConnectionStateListenable().removeListener(listener);
            lock.release();
        }
        // end
        client.close();
    }
}
