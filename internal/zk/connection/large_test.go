package connection_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const bufferSize = 64 << 10

// small is a client with a small receive buffer, and other a client without a limit.
type large struct {
	*testing.T
	srv          *zktest.Server
	small, other *zk.Conn
}

func runLargeTest(t *testing.T, f func(l large)) {
	synctest.Test(t, func(t *testing.T) {
		l := large{T: t, srv: zktest.Start(t)}
		l.small = l.connect(zk.WithMaxBufferSize(bufferSize))
		l.other = l.connect()
		f(l)
		synctest.Wait()
	})
}

func (l large) connect(options ...func(*zk.Conn)) *zk.Conn {
	conn, _, err := l.srv.Connect(4*time.Second, options...)
	require.NoError(l, err)
	_, _, err = conn.Exists("/")
	require.NoError(l, err)
	return conn
}

func (l large) create(path string, size int) {
	_, err := l.other.Create(path, make([]byte, size), 0, zk.WorldACL(zk.PermAll))
	require.NoError(l, err)
}

// breaks returns how often clients have connected since the last call.
func (l large) breaks() int {
	n := l.srv.Log().Count(zktest.OpConnect)
	l.srv.ResetLog()
	return n
}

func get(l large, path string) ([]byte, error) {
	return connection.Read(l.Context(), l.small, func() ([]byte, error) {
		data, _, err := connection.Get(l.small, path)
		return data, err
	})
}

func list(l large, path string) ([]string, error) {
	return connection.Read(l.Context(), l.small, func() ([]string, error) {
		names, _, err := connection.Children(l.small, path)
		return names, err
	})
}

// The largest data within the limit can be read. One byte more is an error after one disconnect.
// Further calls return the error without a disconnect until the data changes.
func TestGet_TooLarge(t *testing.T) {
	runLargeTest(t, func(l large) {
		const fits = bufferSize - 16 - 4 - 68
		l.create("/a", fits)
		l.create("/b", fits+1)
		l.breaks()
		data, err := get(l, "/a")
		require.NoError(l, err)
		require.Len(l, data, fits)
		require.Zero(l, l.breaks())
		for i := range 3 {
			_, err = get(l, "/b")
			require.ErrorIs(l, err, connection.ErrTooLarge)
			require.ErrorContains(l, err, "the data of /b")
			require.Equal(l, map[bool]int{true: 1}[i == 0], l.breaks())
		}
		_, err = l.other.Set("/b", []byte("small"), -1)
		require.NoError(l, err)
		data, err = get(l, "/b")
		require.NoError(l, err)
		require.Equal(l, "small", string(data))
		require.Zero(l, l.breaks())

		require.NoError(l, l.other.Delete("/b", -1))
		_, err = get(l, "/b")
		require.ErrorIs(l, err, zk.ErrNoNode)
	})
}

// GetW returns a watch with the error, which fires when the data becomes smaller.
func TestGetW_TooLarge(t *testing.T) {
	runLargeTest(t, func(l large) {
		l.create("/a", 100<<10)
		watch, err := connection.Read(l.Context(), l.small, func() (<-chan zk.Event, error) {
			_, _, watch, err := connection.GetW(l.small, "/a")
			return watch, err
		})
		require.ErrorIs(l, err, connection.ErrTooLarge)
		_, err = l.other.Set("/a", nil, -1)
		require.NoError(l, err)
		require.Equal(l, zk.EventNodeDataChanged, (<-watch).Type)
		_, err = get(l, "/a")
		require.NoError(l, err)
	})
}

// The size of a list of children is not known, so the error is returned only after several
// disconnects.
func TestChildren_TooLarge(t *testing.T) {
	runLargeTest(t, func(l large) {
		l.create("/many", 0)
		for i := range 1500 {
			l.create(fmt.Sprintf("/many/%s%d", strings.Repeat("x", 50), i), 0)
		}
		l.breaks()
		_, err := list(l, "/many")
		require.ErrorIs(l, err, connection.ErrTooLarge)
		require.ErrorContains(l, err, "the list of children of /many")
		require.Equal(l, 4, l.breaks())
		_, err = list(l, "/many")
		require.ErrorIs(l, err, connection.ErrTooLarge)
		require.Zero(l, l.breaks())
		l.create("/many/another", 0)
		_, err = list(l, "/many")
		require.ErrorIs(l, err, connection.ErrTooLarge)
		require.Equal(l, 1, l.breaks(), "it has changed, and may have become smaller")

		names, _, err := l.other.Children("/many")
		require.NoError(l, err)
		for _, name := range names[:1000] {
			require.NoError(l, l.other.Delete("/many/"+name, -1))
		}
		names, err = list(l, "/many")
		require.NoError(l, err)
		require.Len(l, names, 501)
	})
}

// Requests that are in progress when another reply breaks the connection are not rejected later.
func TestGet_OtherReplyBreaksConnection(t *testing.T) {
	runLargeTest(t, func(l large) {
		l.srv.Delay(zktest.BothWays, time.Millisecond)
		l.create("/large", 100<<10)
		l.create("/small", 10<<10)
		l.create("/list", 0)
		for i := range 400 {
			l.create(fmt.Sprintf("/list/%d", i), 0)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := get(l, "/large")
				require.ErrorIs(l, err, connection.ErrTooLarge)
			})
			all.Go(func() {
				_, err := get(l, "/small")
				require.NoError(l, err)
			})
			all.Go(func() {
				names, err := list(l, "/list")
				require.NoError(l, err)
				require.Len(l, names, 400)
			})
		}
		all.Wait()
	})
}

// A connection that breaks a few times for other reasons is not an error.
func TestGet_OtherDisconnects(t *testing.T) {
	runLargeTest(t, func(l large) {
		l.create("/list", 0)
		for i := range 400 {
			l.create(fmt.Sprintf("/list/%d", i), 0)
		}
		l.create("/small", 60<<10)
		for nth := range 3 {
			l.srv.After(zktest.Match{Op: zktest.OpGetChildren2, Path: "/list", Nth: nth + 1}, zktest.Cut)
		}
		for nth := range 10 {
			l.srv.After(zktest.Match{Op: zktest.OpGetData, Path: "/small", Nth: nth + 1}, zktest.Cut)
		}
		_, err := list(l, "/list")
		require.NoError(l, err)
		_, err = get(l, "/small")
		require.NoError(l, err)
	})
}

// Without a limit, no additional requests are sent.
func TestGet_NoLimit(t *testing.T) {
	runLargeTest(t, func(l large) {
		l.create("/a", 200<<10)
		l.srv.ResetLog()
		l.srv.After(zktest.Match{Op: zktest.OpGetData, Path: "/a", Nth: 1}, zktest.Cut)
		data, err := connection.Read(l.Context(), l.other, func() ([]byte, error) {
			data, _, err := connection.Get(l.other, "/a")
			return data, err
		})
		require.NoError(l, err)
		require.Len(l, data, 200<<10)
		asked := l.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpExists && e.Path == "/a" })
		require.Empty(l, asked)
	})
}
