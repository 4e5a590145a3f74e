package integrationtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

// TestQueueIsShared has Go and another library put into one queue and consume from
// it, at the same time: each item is processed, by one of the two, once.
func TestQueueIsShared(t *testing.T) {
	for name, c := range map[string]struct {
		peer   func(t *testing.T, args ...string) *exec.Cmd
		kind   string
		layout recipes.Layout
		option func(i int) []queue.PutOption
	}{
		"Curator": {peer: curatorPeer, kind: "plain"},
		"Curator priority": {peer: curatorPeer, kind: "priority", option: func(i int) []queue.PutOption {
			return []queue.PutOption{queue.Priority(i%5 - 2)}
		}},
		"Curator delay": {peer: curatorPeer, kind: "delay", option: func(i int) []queue.PutOption {
			return []queue.PutOption{queue.At(time.Now().Add(time.Duration(20*(i%50)) * time.Millisecond))}
		}},
		"kazoo": {peer: kazooPeer, kind: "plain", layout: recipes.Kazoo},
	} {
		t.Run(name, func(t *testing.T) {
			const items = 100 // of each
			path := harness.NewPath(t)
			peer := startQueuePeer(t, c.peer(t, shared.Addrs()[0], c.kind, path, fmt.Sprint(items)))
			conn := connectDirectly(t)
			opts := []recipes.Option{recipes.WithSessionTimeout(sessionTimeout), recipes.WithLayout(c.layout)}
			q, err := queue.New(conn.Conn, path, queue.Config{}, opts...)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			var mu sync.Mutex
			took := map[string][]string{}
			all := make(chan struct{})
			process := func(who, item string) {
				mu.Lock()
				defer mu.Unlock()
				took[item] = append(took[item], who)
				if len(took) == 2*items {
					select {
					case <-all:
					default:
						close(all)
					}
				}
			}
			var consuming sync.WaitGroup
			peerTakes := make(chan struct{}) // closed when the peer has taken an item
			consuming.Go(func() {
				for item := range q.Consume(ctx) {
					process("go", string(item.Data()))
					// The peer may start to consume much later than this process.
					select {
					case <-peerTakes:
					case <-ctx.Done():
					}
					require.NoError(t, item.Ack(context.Background()))
					time.Sleep(5 * time.Millisecond) // the other one wants some too
				}
			})
			consuming.Go(func() {
				first := sync.OnceFunc(func() { close(peerTakes) })
				for line := range peer.lines {
					switch what, item, _ := strings.Cut(line, " "); what {
					case "ready":
					case "took":
						process("peer", item)
						first()
					default:
						t.Errorf("the peer says %q", line)
					}
				}
			})
			for i := range items {
				var options []queue.PutOption
				if c.option != nil {
					options = c.option(i)
				}
				require.NoError(t, q.Put(ctx, fmt.Appendf(nil, "go-%d", i), options...))
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
			time.Sleep(quietTime) // for what is processed twice
			cancel()
			peer.stop()
			consuming.Wait()
			require.NoError(t, q.Err())
			shares := map[string]int{}
			for item, who := range took {
				require.Len(t, who, 1, "%s was processed by %v", item, who)
				shares[who[0]]++
			}
			require.Equal(t, 2*items, len(took))
			t.Logf("%v", shares)
			require.NotZero(t, shares["go"])
			require.NotZero(t, shares["peer"])
			n, err := q.Len(context.Background())
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, q.Close(context.Background()))
		})
	}
}

// queuePeer is a process of another library.
type queuePeer struct {
	lines <-chan string // closed when it has ended
	stop  func()        // ends it; what it still says must be read
}

func startQueuePeer(t *testing.T, cmd *exec.Cmd) *queuePeer {
	t.Helper()
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	lines := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
		_ = cmd.Wait()
	}()
	stop := sync.OnceFunc(func() {
		_ = input.Close()
		killed := time.AfterFunc(harness.WaitLimit, func() { _ = cmd.Process.Kill() })
		t.Cleanup(func() { killed.Stop() })
	})
	t.Cleanup(func() {
		stop()
		for range lines {
		}
		<-ended
	})
	return &queuePeer{lines: lines, stop: stop}
}

// kazooPeer runs the Python peer, with the first interpreter that has kazoo.
func kazooPeer(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import kazoo").Run() == nil {
			return exec.Command(python, append([]string{filepath.Join("peers", "queue_peer.py")}, args...)...)
		}
	}
	absent(t, "no python3 has kazoo; on Debian: apt-get install -y python3-kazoo")
	return nil
}

// curatorPeer runs the Java peer from its source.
func curatorPeer(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	var path []string
	for _, jar := range []string{"curator-recipes", "curator-framework", "curator-client", "slf4j-nop"} {
		jar = "/usr/share/java/" + jar + ".jar"
		if _, err := os.Stat(jar); err != nil {
			absent(t, fmt.Sprintf("no %s; on Debian: apt-get install -y libcurator-recipes-java", jar))
		}
		path = append(path, jar)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		absent(t, "no javac on the PATH; on Debian: apt-get install -y openjdk-17-jdk-headless")
	}
	return exec.Command("java", append([]string{"-Xmx256m", "-cp", strings.Join(path, string(filepath.ListSeparator)), filepath.Join("peers", "QueuePeer.java")}, args...)...)
}

// absent skips a test that has nothing to compare with; where everything is
// required, as for zktest's tests, it fails.
func absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ZKTEST_REAL") == "required" {
		t.Fatal(what)
	}
	t.Skip(what)
}
