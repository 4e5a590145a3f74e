//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// status is what the command says once somebody leads.
func (c *cluster) status(args ...string) report {
	c.Helper()
	for limit := time.Now().Add(patience); ; {
		r := c.run(append([]string{"status", "--once", "--json"}, args...)...)
		var s report
		require.NoError(c, json.Unmarshal([]byte(r.out), &s), r.log)
		if r.code == 0 {
			return s
		}
		require.Equal(c, exitNobody, r.code, r.log)
		require.True(c, time.Now().Before(limit), "nobody leads: %s", r.out)
	}
}

// applied waits until all peers that run have applied an entry. Who has confirmed it has; the
// others, which commands may ask as well, hear of it later.
func (c *cluster) applied(index string) {
	c.Helper()
	want, err := strconv.ParseUint(index, 10, 64)
	require.NoError(c, err)
	for limit := time.Now().Add(patience); ; {
		s := c.status()
		late := slices.Collect(maps.Keys(c.peers))
		late = slices.DeleteFunc(late, func(id string) bool {
			return c.peers[id].ended || slices.ContainsFunc(s.Peers, func(p peerReport) bool {
				return p.Peer.ID == id && p.Info != nil && p.Info.LastApplied >= want
			})
		})
		if len(late) == 0 {
			return
		}
		require.True(c, time.Now().Before(limit), "%v have not applied entry %s: %+v", late, index, s.Peers)
	}
}

// propose has an update applied, and keeps what was confirmed.
func (c *cluster) propose(acknowledged map[string]string, data string) (index, id string) {
	c.Helper()
	index, id, ok := strings.Cut(strings.TrimSpace(c.ok("propose", data)), " ")
	require.True(c, ok)
	acknowledged[index] = data
	return index, id
}

// requireLog checks that the log has what was confirmed, where it was, and each once.
func (c *cluster) requireLog(acknowledged map[string]string, args ...string) {
	c.Helper()
	newest := slices.MaxFunc(slices.Collect(maps.Keys(acknowledged)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	c.applied(newest)
	found := map[string]string{}
	for text := range strings.Lines(c.ok(append(args, "--format", "json")...)) {
		var l line
		require.NoError(c, json.Unmarshal([]byte(text), &l))
		if l.Kind == "STATE" && !l.Skipped {
			require.False(c, slices.Contains(values(found), *l.Data), "%q was applied twice", *l.Data)
			found[fmt.Sprint(l.Index)] = *l.Data
		}
	}
	require.Equal(c, acknowledged, found)
}

func values(m map[string]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

func ids(peers []peerReport) (all []string) {
	for _, p := range peers {
		all = append(all, p.Peer.ID)
	}
	slices.Sort(all)
	return all
}

func TestPeersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	index, id := c.propose(acknowledged, "first")
	require.Equal(t, index+" "+id+"\n", c.ok("propose", "--request-id", id, "first"), "the ID is known")
	r := c.run("propose", "--request-id", id, "other data")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.log, "used for other data")

	// A fourth one, that is not in the configuration.
	c.start("d", "--addr", c.addr("d"))
	r = c.run("config", "--dry-run", "--add", "tcp://"+c.addr("d")+"/d")
	require.Zero(t, r.code, r.log)
	require.Contains(t, r.out, "nothing was changed")
	change := requestid.New().String()
	r = c.run("config", "--add", "tcp://"+c.addr("d")+"/d", "--request-id", change)
	require.Zero(t, r.code, r.log)
	require.Less(t, r.took, 10*time.Second)
	_, complete, ok := strings.Cut(strings.TrimSpace(r.out), "complete at entry ")
	require.True(t, ok, r.out)
	c.applied(complete)
	require.Equal(t, []string{"a", "b", "c", "d"}, ids(c.status().Peers))
	// Who could not know whether it was carried out repeats it, and is told.
	r = c.run("config", "--add", "tcp://"+c.addr("d")+"/d", "--request-id", change)
	require.Zero(t, r.code, r.log)
	require.Contains(t, r.out, "complete at entry "+complete)
	r = c.run("config", "--add", "tcp://"+c.addr("d")+"/d", "--request-id", requestid.New().String())
	require.Equal(t, exitExists, r.code, "it was another change: %s", r.log)

	// On an idle cluster too it ends at once (it has asked for ever).
	r = c.run("config")
	require.Zero(t, r.code, r.log)
	require.Less(t, r.took, 10*time.Second)
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Contains(t, r.out, "tcp://"+c.addr(id)+"/"+id)
	}
	require.Contains(t, r.out, "(leader)")

	r = c.run("config", "--add", c.addr("d")+"/d")
	require.Equal(t, exitExists, r.code, r.log)
	r = c.run("config", "--delete", "127.0.0.1:1/x")
	require.Equal(t, exitMissing, r.code, r.log)
	r = c.run("config", "--replace", c.addr("a")+"/a", "--delete", "b")
	require.Equal(t, exitUsage, r.code, r.log)

	// The leader goes.
	leader := c.status().Leader.ID
	change = requestid.New().String()
	r = c.run("config", "--delete", leader, "--request-id", change)
	require.Zero(t, r.code, r.log)
	require.Less(t, r.took, 10*time.Second)
	c.peers[leader].logs(t, "role=removed") // it hears of it after the others
	c.peers[leader].logs(t, "needs another ID")
	require.Contains(t, c.ok("config", "--delete", leader, "--request-id", change), "complete at entry")
	require.Equal(t, exitMissing, c.run("config", "--delete", leader).code)
	s := c.status()
	require.NotEqual(t, leader, s.Leader.ID)
	require.NotContains(t, ids(slices.DeleteFunc(s.Peers, func(p peerReport) bool { return p.Info == nil || p.Info.Role == "removed" })), leader)
	require.Zero(t, c.peers[leader].end(t, syscall.SIGTERM))
	c.propose(acknowledged, "without the first leader")
	c.requireLog(acknowledged, "tail", "--once")
	r = c.run("config", "--add", c.addr(leader)+"/"+leader)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.log, "removed")

	// A new peer that does not answer changes nothing, and does not prevent the next change.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	r = c.run("config", "--add", silent.Addr().String()+"/x", "--wait", "5s")
	require.Equal(t, exitFailed, r.code, r.log)
	require.Contains(t, r.log, "nothing was changed")
	r = c.run("config", "--delete", "d")
	require.Zero(t, r.code, r.log)
}

func TestCompactBesidePeers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	acknowledged := map[string]string{}
	last := ""
	for i := range 5 {
		last, _ = c.propose(acknowledged, fmt.Sprint("update ", i))
	}
	c.applied(last)
	// As far as the peer itself says: before the first ID that is fresh.
	r := c.run("compact", "--peer-id", "a", "-p", "a", "--wait", "15s")
	require.Zero(t, r.code, r.log)
	require.Contains(t, r.log, "has taken it over")
	r = c.run("compact", "--peer-id", "a", "-p", "a")
	require.Equal(t, exitNothing, r.code, r.log)
	// And further.
	r = c.run("compact", "--peer-id", "a", "-p", c.addr("a"), "-i", last, "-t", filepath.Join(c.dir, "a", "compact", "snap.new"), "--wait", "15s")
	require.Zero(t, r.code, r.log)
	r = c.run("compact", "--peer-id", "b", "-i", "1000")
	require.Equal(t, exitUsage, r.code, r.log)
	require.Contains(t, r.log, "not known to be committed")
	for _, p := range c.status().Peers {
		if p.Peer.ID == "a" {
			require.Equal(t, last, fmt.Sprint(p.Info.SnapshotIndex))
		}
	}
	var s offline.Snapshot
	require.NoError(t, json.Unmarshal([]byte(c.ok("inspect", "--peer-id", "a", "--json")), &s))
	require.Equal(t, last, fmt.Sprint(s.Index))
	require.Equal(t, 5, s.RequestIDs)
	require.Contains(t, c.ok("inspect", filepath.Join(c.dir, "a")), "request IDs: 5")

	// One joins from that snapshot, and has the whole log that is left.
	e := c.start("e", "--addr", c.addr("e"))
	require.Contains(t, e.log.text(), "received the snapshot", "from a, which is asked first")
	require.Contains(t, e.log.text(), "index="+last)
	r = c.run("config", "--add", c.addr("e")+"/e")
	require.Zero(t, r.code, r.log)
	fifth, _ := c.propose(acknowledged, "with the fifth")
	c.applied(fifth)
	require.Equal(t, []string{"a", "b", "c", "e"}, ids(c.status().Peers))

	// Beside running peers.
	c.requireLog(acknowledged, "dump", filepath.Join(c.dir, "b"))
	require.Equal(t, 2, strings.Count(c.ok("dump", "--peer-id", "b", "-i", "2-3", "--format", "hex"), "\n"))
	var l listing
	require.NoError(t, json.Unmarshal([]byte(c.ok("list", "--peer-id", "a", "--json")), &l))
	require.Equal(t, offline.Owner{Cluster: "test", Peer: "a"}, l.Owner)
	require.Len(t, l.Log.Segments, 1)
	require.Len(t, l.Snapshots, 3)
	require.Contains(t, c.ok("list", filepath.Join(c.dir, "a")), "snapshot snap\n")
	for _, p := range []string{"a", "b", "c", "e"} {
		require.Zero(t, c.peers[p].end(t, syscall.SIGINT))
	}
	// And beside those that are not.
	require.Contains(t, c.ok("dump", "--peer-id", "e"), "with the fifth")
	r = c.run("status", "--once", "-t", "300")
	require.Equal(t, exitNobody, r.code)
	require.Contains(t, r.out, "connection refused")
	r = c.run("config", "-t", "300")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.log, "are the peers running")
	r = c.run("tail", "-t", "300")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.log, "no peer has answered within 300ms")
	require.Contains(t, r.log, "connection refused")
}

func TestPeersAreKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	all := []string{"a", "b", "c"}
	for _, id := range all {
		c.start(id)
	}
	acknowledged := map[string]string{}
	c.propose(acknowledged, "before")
	leader := c.status().Leader.ID
	id := requestid.New().String()
	done := make(chan result, 1)
	go func() {
		defer close(done)
		done <- c.run("propose", "--request-id", id, "meanwhile")
	}()
	c.peers[leader].end(t, syscall.SIGKILL)
	r := <-done
	require.Zero(t, r.code, r.log)
	require.Equal(t, r.out, c.ok("propose", "--request-id", id, "meanwhile"), "the same as the first time")
	acknowledged[strings.Fields(r.out)[0]] = "meanwhile"
	require.NotEqual(t, leader, c.status().Leader.ID)
	c.propose(acknowledged, "by two")

	left := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == leader })
	c.peers[left[0]].end(t, syscall.SIGKILL)
	// A single peer of three does not know the last committed entry, once its lease has ended.
	for limit := time.Now().Add(patience); ; {
		if alone := c.run("tail", "--once", "-t", "500ms"); alone.code != 0 {
			require.Equal(t, exitFailed, alone.code, alone.log)
			break
		}
		require.True(t, time.Now().Before(limit), "tail --once succeeds without a majority")
	}
	c.peers[left[1]].end(t, syscall.SIGKILL)
	for _, id := range all {
		c.start(id)
	}
	c.status()
	c.requireLog(acknowledged, "tail", "--once")
	require.Equal(t, r.out, c.ok("propose", "--request-id", id, "meanwhile"), "IDs are remembered")
	c.propose(acknowledged, "after all")
	c.requireLog(acknowledged, "tail", "--once")

	// Whoever has another secret is refused, and is told so.
	r = command(t, []string{secretVariable + "=another-secret-of-no-use"}, "propose", "-c", c.file, "no")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.log, "refused")
	require.NotContains(t, r.log, "another-secret")
}

// long is a command that goes on until a signal.
func (c *cluster) long(args ...string) (*exec.Cmd, *lines) {
	c.Helper()
	cmd := exec.Command(built, append([]string{args[0], "-c", c.file}, args[1:]...)...)
	r, w, err := os.Pipe()
	require.NoError(c, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(c, cmd.Start())
	w.Close()
	l := newLines(r)
	c.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		l.end()
		if c.Failed() {
			c.Logf("%s\n%s", strings.Join(args, " "), l.text())
		}
	})
	return cmd, l
}

// interrupted ends a command as a terminal does.
func interrupted(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	limit := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func TestCommandsThatGoOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	// A peer that looks for its cluster ends all the same.
	joining, log := c.long("serve", "--addr", c.addr("b"), "--log-level", "debug", "--peer-id", "b")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "b", "peer.json"))
		return err == nil
	}, patience, 10*time.Millisecond)
	require.Zero(t, interrupted(t, joining))
	log.wait(t, "stopped while starting")

	c.start("a")
	tail, printed := c.long("tail")
	status, tables := c.long("status", "-i", "100ms")
	propose := exec.Command(built, "propose", "-c", c.file, "-")
	propose.Stdin = strings.NewReader("from standard input\n")
	out, err := propose.Output()
	require.NoError(t, err)
	index, _, _ := strings.Cut(string(out), " ")
	require.True(t, strings.HasPrefix(printed.wait(t, `"from standard input\n"`), index+" "))
	for range 3 {
		require.NotContains(t, tables.wait(t, "cluster test, "), "\x1b")
	}
	// Its files do not say yet that the newest entry is committed, and it does.
	c.ok("compact", "--peer-id", "a", "-i", index, "-p", "a")
	require.Zero(t, interrupted(t, tail))
	tables.wait(t, "leader a")
	require.Zero(t, interrupted(t, status))
}
