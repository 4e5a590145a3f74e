//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// refused runs a peer that must not take part until it ends.
func (c *cluster) refused(id, says string, args ...string) {
	c.Helper()
	r := c.run(append([]string{"serve", "--peer-id", id}, args...)...)
	require.Equal(c, exitIdentity, r.code, r.log)
	lines := strings.Split(strings.TrimSpace(r.log), "\n")
	last := lines[len(lines)-1]
	require.True(c, strings.HasPrefix(last, "raftlog: this peer must not take part in the cluster: "), r.log)
	require.Contains(c, last, says)
}

// kill ends processes without a word.
func (c *cluster) kill(ids ...string) {
	c.Helper()
	for _, id := range ids {
		c.peers[id].end(c.T, syscall.SIGKILL)
	}
}

// dataDir is the directory of a peer.
func (c *cluster) dataDir(id string) string { return filepath.Join(c.dir, id) }

// After a restart of all machines, one of which has lost its disk, the log of its peer, or an
// earlier state of it, the peer ends, and nothing that was acknowledged is lost.
func TestLostDataAfterARestartOfAll(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(t *testing.T, c *cluster, dir string)
		says string
	}{
		"directory": {func(t *testing.T, _ *cluster, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}, "does not have the data of its ID"},
		"log": {func(t *testing.T, _ *cluster, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "log")))
		}, "was lost"},
		"last state": {func(t *testing.T, c *cluster, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(c.dir, "earlier"))))
		}, "restored to an earlier state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "a", "b", "c")
			for _, id := range []string{"a", "b", "c"} {
				c.start(id)
			}
			acknowledged := map[string]string{}
			one, _ := c.propose(acknowledged, "one, at all three")
			c.applied(one)
			c.kill("b")
			require.NoError(t, os.CopyFS(filepath.Join(c.dir, "earlier"), os.DirFS(c.dataDir("b"))))
			// The connection to c may be logged before or after the line for which start waits.
			b := c.start("b")
			require.Eventually(t, func() bool {
				return strings.Contains(b.log.text(), `connected to peer" cluster=test peer=b peer=c`)
			}, patience, 10*time.Millisecond)
			c.kill("c")
			c.propose(acknowledged, "two, acknowledged by a and b")
			c.propose(acknowledged, "three, acknowledged by a and b")
			c.kill("a", "b")
			test.lose(t, c, c.dataDir("b"))
			c.start("c")
			c.refused("b", test.says)
			r := c.run("propose", "-t", "1s", "four")
			require.NotZero(t, r.code, "c alone has acknowledged an update")
			c.start("a")
			c.propose(acknowledged, "five, acknowledged by a and c")
			// "four" may have reached c, and is not acknowledged.
			c.requireAcknowledged(acknowledged)
		})
	}
}

// requireAcknowledged checks that the log has what was acknowledged, where it was.
func (c *cluster) requireAcknowledged(acknowledged map[string]string) {
	c.Helper()
	text := c.ok("tail", "--once")
	for index, data := range acknowledged {
		require.Regexp(c, `(?m)^`+index+` .*"`+data+`"`, text)
	}
}

// An operator replaces a dead peer by another one in the file that all peers share. The new peer
// does not found a second configuration, whether it finds the others or not.
func TestSecondConfiguration(t *testing.T) {
	t.Parallel() // it mostly waits
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	one, _ := c.propose(acknowledged, "one")
	c.applied(one)
	c.kill("c")
	text, err := os.ReadFile(c.file)
	require.NoError(t, err)
	shared := filepath.Join(c.dir, "shared.yaml")
	edited := strings.ReplaceAll(string(text), "tcp://"+c.addr("c")+"/c", "tcp://"+c.addr("d")+"/d")
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(shared, []byte(edited), 0o600))
	original := c.file
	c.file = shared
	c.refused("d", "created separately")

	// All others are down: nobody tells it.
	c.kill("a", "b")
	d := c.start("d")
	c.start("a")
	require.Equal(t, exitIdentity, d.wait(t))
	d.logs(t, "created separately")
	c.start("b")
	c.file = original
	c.propose(acknowledged, "two")
	c.start("c")
	c.propose(acknowledged, "three")
	c.requireLog(acknowledged, "tail", "--once")
}

// wait waits until a process ends by itself, and returns its exit code.
func (p *peer) wait(t *testing.T) int {
	t.Helper()
	return p.end(t, syscall.Signal(0))
}

// A second process with a copy of the directory of a peer that runs ends, and the peer goes on.
func TestCopyOfADirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	one, _ := c.propose(acknowledged, "one")
	c.applied(one)
	dir := filepath.Join(c.dir, "copy")
	require.NoError(t, os.CopyFS(dir, os.DirFS(c.dataDir("b"))))
	c.refused("b", "another process that uses the same ID", "-d", dir, "--listen", "127.0.0.1:0")
	c.kill("c")
	c.propose(acknowledged, "two, acknowledged by a and b")
	c.requireLog(acknowledged, "tail", "--once")
}

// After the loss of a majority the peer that is left is recovered, the others are refused, and new
// ones join.
func TestRecover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	last, _ := c.propose(acknowledged, "one")
	c.applied(last)
	require.Equal(t, exitUsage, c.run("recover", "--peer-id", "a", "--accept-data-loss").code, "it runs")
	c.kill("b", "c", "a")
	require.NoError(t, os.RemoveAll(c.dataDir("c"))) // b is gone with its machine, for the time being

	r := c.run("recover", "--peer-id", "a")
	require.Equal(t, exitUsage, r.code, r.log)
	require.Contains(t, r.log, "nothing was changed")
	require.Contains(t, r.out, "lost: every update after entry "+last)
	require.Contains(t, r.out, "removed permanently: b, c")
	require.Contains(t, c.ok("recover", "--peer-id", "a", "--accept-data-loss"), "start peer a")
	a := c.start("a")
	c.propose(acknowledged, "two, by a alone")
	c.refused("b", "recovered without this peer")
	c.start("d", "--addr", c.addr("d"))
	c.start("e", "--addr", c.addr("e"))
	c.ok("config", "--add", c.addr("d")+"/d", "--add", c.addr("e")+"/e")
	a.end(t, syscall.SIGKILL)
	c.file = c.only("d", "e")
	c.propose(acknowledged, "three, by d and e")
	c.requireLog(acknowledged, "tail", "--once")
}

// only is a file with other peers.
func (c *cluster) only(ids ...string) string {
	c.Helper()
	text, err := os.ReadFile(c.file)
	require.NoError(c, err)
	before, _, _ := strings.Cut(string(text), "peers:\n")
	var b strings.Builder
	b.WriteString(before + "peers:\n")
	for _, id := range ids {
		b.WriteString("  - tcp://" + c.addr(id) + "/" + id + "\n")
	}
	name := filepath.Join(c.dir, strings.Join(ids, "")+".yaml")
	require.NoError(c, os.WriteFile(name, []byte(b.String()), 0o600))
	return name
}

// A snapshot begins a new cluster, after the loss of all peers.
func TestExportAndRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	c.start("a")
	acknowledged := map[string]string{}
	last, id := c.propose(acknowledged, "one")
	c.ok("compact", "--peer-id", "a", "-i", last, "-p", "a", "--wait", "15s")
	file := filepath.Join(c.dir, "exported")
	require.Contains(t, c.ok("export", "--peer-id", "a", file), "through entry "+last)
	require.Equal(t, exitUsage, c.run("export", "--peer-id", "a", file).code, "it exists")
	c.kill("a")
	require.NoError(t, os.RemoveAll(c.dataDir("a")))
	require.Equal(t, exitUsage, c.run("restore", "--peer-id", "b", file).code, "no address")
	require.Contains(t, c.ok("restore", "--peer-id", "b", "--addr", c.addr("b"), "--index-gap", "1000", file), "peer b of cluster test")
	c.file = c.only("b")
	c.start("b")
	require.Equal(t, last+" "+id+"\n", c.ok("propose", "--request-id", id, "one"), "the ID is known")
	next := c.ok("propose", "two")
	require.Len(t, strings.Fields(next)[0], 4, "its index is above 1000")
}

// A peer whose machine has moved is started with its new address in the file.
func TestPeerMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	last, _ := c.propose(acknowledged, "one")
	c.applied(last)
	c.kill("b")
	was, now := c.addr("b"), c.addr("b at another address")
	text, err := os.ReadFile(c.file)
	require.NoError(t, err)
	require.Contains(t, string(text), was)
	require.NoError(t, os.WriteFile(c.file, []byte(strings.ReplaceAll(string(text), was, now)), 0o600))
	c.start("b")
	require.Eventually(t, func() bool {
		r := c.run("config")
		return strings.Contains(r.out, "tcp://"+now+"/b") && !strings.Contains(r.out, was)
	}, patience, 100*time.Millisecond)
	c.kill("c")
	c.propose(acknowledged, "two, by a and b")
	c.requireLog(acknowledged, "tail", "--once")
}
