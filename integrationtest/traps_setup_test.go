package integrationtest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// drop breaks all connections; new ones are welcome.
func (l link) drop() {
	for _, p := range l {
		p.DropConnections()
	}
}

// thaw ends freeze; unlike with restore, what was held back goes on.
func (l link) thaw() {
	for _, p := range l {
		p.Unblackhole()
	}
}

// refuse leaves connections alone and refuses new ones, until restore.
func (l link) refuse() {
	for _, p := range l {
		p.Refuse(true)
	}
}

// expireSession ends a session by the first way that knows it.
func (l link) expireSession(session int64) (err error) {
	for _, p := range l {
		if err = p.ExpireSession(session); err == nil {
			return nil
		}
	}
	return err
}

// expire ends a client's session while its link is cut.
func expire(t testing.TB, conn *client) {
	t.Helper()
	session := conn.SessionID()
	conn.link.cut()
	require.NoError(t, conn.link.expireSession(session))
}

// connectWays opens a session with several ways to the shared server: the
// client library goes to the next without the pause of a second that it makes
// before it tries the same one again.
func connectWays(t testing.TB, timeout time.Duration) *client {
	t.Helper()
	addr := shared.Addr(0)
	return connectTo(t, timeout, addr, addr, addr)
}

// contender puts a znode into the line, named as by Curator, that does nothing
// but stand there.
func contender(t testing.TB, conn *client, node string) string {
	t.Helper()
	path, err := conn.Create(node+"/_c_"+uuid()+"-latch-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// uuid returns a random UUID, of the version that Curator uses.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	x := hex.EncodeToString(b[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// remove deletes a znode.
func remove(t testing.TB, conn *client, path string) {
	t.Helper()
	require.NoError(t, conn.Delete(path, -1))
}

// guid is a candidate's name without the sequence number.
func guid(id string) string { return id[strings.LastIndex(id, "/")+1 : len(id)-10] }

// goesOn waits until requests are answered again.
func goesOn(t testing.TB, conn *client) {
	t.Helper()
	eventually(t, func() bool {
		_, _, err := conn.Exists("/")
		return err == nil && conn.State() == zk.StateHasSession
	}, "the connection is back")
}

// clientWatches is how many watches the client library keeps for a connection.
func clientWatches(t testing.TB, conn *client) (n int) {
	t.Helper()
	goesOn(t, conn) // so that all events before have been handled
	fields := reflect.ValueOf(conn.Conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	for _, channels := range fields.FieldByName("watchers").Seq2() {
		n += channels.Len()
	}
	return n
}

// await waits for a channel's close or element.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.Fail(t, "timeout", what)
		panic("unreachable")
	}
}

// inBackground runs f on a goroutine that the test waits for.
func inBackground[T any](t testing.TB, f func() T) <-chan T {
	c := make(chan T, 1)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		c <- f()
	}()
	return c
}

// under accepts the paths below a node.
func under(node string) func(string) bool {
	return func(path string) bool { return strings.HasPrefix(path, node+"/") }
}

// statOf reads a znode that must be there.
func statOf(t testing.TB, conn *client, path string) *zk.Stat {
	t.Helper()
	found, stat, err := conn.Exists(path)
	require.NoError(t, err)
	require.True(t, found, path)
	return stat
}

// creates is how many children a node has ever got.
func creates(t testing.TB, conn *client, node string) int {
	t.Helper()
	// The counter grows by one for each create and each delete.
	stat := statOf(t, conn, node)
	return int(stat.Cversion+stat.NumChildren) / 2
}

// onlyChild checks that a candidate has one znode, owned by its own session.
func onlyChild(t testing.TB, conn *client, node string, c *candidate, owner *client) {
	t.Helper()
	require.Equal(t, []string{base(c)}, children(t, conn, node))
	require.Equal(t, owner.SessionID(), statOf(t, conn, c.ID()).EphemeralOwner)
}

// forSession is the option for sessions of another length than the usual one.
func forSession(d time.Duration) leaderelection.Option {
	return leaderelection.WithSessionTimeout(d)
}

// watchCount is how many watches a server holds, those on data and those on
// children. "wchs" and "wchp" do not show the latter.
func watchCount(t testing.TB, e *ensemble.Ensemble) int {
	t.Helper()
	answer, err := e.FourLetter(0, "mntr")
	require.NoError(t, err)
	for line := range strings.Lines(answer) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == "zk_watch_count" {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no zk_watch_count", "%s", answer)
	return 0
}

// dataWatches lists the watched paths under a node, each as often as there are
// sessions that watch it; watches on children are not in it.
func dataWatches(t testing.TB, e *ensemble.Ensemble, node string) (paths []string) {
	t.Helper()
	answer, err := e.FourLetter(0, "wchp")
	require.NoError(t, err)
	path := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "/"):
			path = line
		case strings.HasPrefix(line, "\t") && strings.HasPrefix(path, node+"/"):
			paths = append(paths, path) // a line for each connection that watches
		}
	}
	return paths
}

// startEnsemble starts servers that end with the test.
func startEnsemble(t testing.TB, cfg ensemble.Config) *ensemble.Ensemble {
	t.Helper()
	e, err := ensemble.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for i := range e.Servers() {
				t.Logf("server %d:\n%s", i, e.Log(i))
			}
		}
		require.NoError(t, e.Close())
	})
	return e
}

// parent is the election node of a candidate that takes part.
func parent(c *candidate) string { return path.Dir(c.ID()) }

func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(target error) bool { return errors.Is(err, target) })
}

// deleteOf is a part of a transaction.
func deleteOf(path string) *zk.DeleteRequest { return &zk.DeleteRequest{Path: path, Version: -1} }
