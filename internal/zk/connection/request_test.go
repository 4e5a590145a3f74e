package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestTransient_DistinguishesFinalErrors checks that Transient returns true for errors after which a request can be
// repeated, and false for final errors.
func TestTransient_DistinguishesFinalErrors(t *testing.T) {
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionMoved, zk.ErrSessionExpired, zk.ErrClosing,
		&net.OpError{Op: "write", Err: errors.New("broken pipe")}, fmt.Errorf("unknown error: %v", -127),
		fmt.Errorf("wrapped: %w", zk.ErrNoServer), io.ErrClosedPipe, io.EOF, net.ErrClosed,
	} {
		require.True(t, Transient(err), "%v", err)
	}
	for _, err := range []error{nil, zk.ErrNoNode, zk.ErrNoAuth, ErrConnClosed, context.Canceled, fmt.Errorf("unknown error: %v", -6)} {
		require.False(t, Transient(err), "%v", err)
	}
}

// TestRead_ReportsRequiredAuthentication checks that Read returns the answer of a server that requires
// authentication, and that the error names the server and the remedy. Such a server answers only the first request
// of a connection, which can be the request by which Read finds out whether the connection is closed.
func TestRead_ReportsRequiredAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := bubble.Connect(t, srv, 4*time.Second)
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/a", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			bubble.RequireAuthentication(srv)
			return zktest.Cut(q)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := Read(ctx, conn, func() (bool, error) {
			exists, _, err := conn.Exists("/a")
			return exists, err
		})
		require.ErrorIs(t, err, ErrPermission)
		require.ErrorContains(t, err, "SESSIONCLOSEDREQUIRESASLAUTH -124 from "+conn.Server())
		require.ErrorContains(t, err, "AddAuth")
	})
}

// TestRetry_IgnoresACLOfRoot checks that Retry repeats a request that has failed with the connection, although the
// ACL of the root denies the request by which Retry finds out whether the connection is closed.
func TestRetry_IgnoresACLOfRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := bubble.Connect(t, srv, 4*time.Second)
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/"}, zktest.Fail(zk.ErrNoAuth))
		srv.Before(zktest.Match{Op: zktest.OpExists, Path: "/a", Nth: 1}, zktest.Cut)
		require.NoError(t, Retry(t.Context(), conn, func() error {
			_, _, err := conn.Exists("/a")
			return err
		}))
	})
}

// TestDo_ReturnsWhenContextIsDone checks that Do does not wait for a request after its context is done, and does
// not send a request if the context is done before.
func TestDo_ReturnsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		hung := make(chan struct{})
		reason := errors.New("enough")
		go func() {
			synctest.Wait()
			cancel(reason)
		}()
		_, err := Do(ctx, func() (int, error) { <-hung; return 1, nil })
		require.ErrorIs(t, err, reason)
		_, err = Do(ctx, func() (int, error) { panic("called although the context is done") })
		require.ErrorIs(t, err, reason)
		close(hung)
	})
}

// TestEach_KeepsOrderOfResults checks that Each returns the results in the order of the arguments, runs no more
// calls at the same time than permitted, and starts no call after a failure.
func TestEach_KeepsOrderOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, running, most := []string{"a", "bb", "ccc", "dddd", "eeeee"}, 0, 0
		var mu sync.Mutex
		run := func(change int) {
			mu.Lock()
			defer mu.Unlock()
			running += change
			most = max(most, running)
		}
		call := func(_ int, name string) (int, error) {
			run(1)
			defer run(-1)
			time.Sleep(time.Second / time.Duration(len(name)))
			return len(name), nil
		}
		lengths, err := Each(names, 3, call)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3, 4, 5}, lengths)
		require.Equal(t, 3, most)

		failure, calls := errors.New("failure"), 0
		_, err = Each(names, 1, func(int, string) (int, error) { calls++; return 0, failure })
		require.Equal(t, failure, err)
		require.Equal(t, 1, calls)
	})
}

// TestRead_ReturnsResultAndFinalError checks that Read does not repeat a request that has failed with a final
// error, and returns the result together with the error.
func TestRead_ReturnsResultAndFinalError(t *testing.T) {
	n, err := Read(t.Context(), nil, func() (int, error) { return 7, zk.ErrNoNode })
	require.Equal(t, 7, n)
	require.ErrorIs(t, err, zk.ErrNoNode)
}

// TestRead_RetriesTransientFailures checks that Read repeats a request that fails with a transient error, until the
// context is done.
func TestRead_RetriesTransientFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		n, err := Read(t.Context(), nil, func() (int, error) {
			if tries++; tries < 20 {
				return 0, zk.ErrNoServer
			}
			return tries, nil
		})
		require.NoError(t, err)
		require.Equal(t, 20, n)

		ctx, cancel := context.WithCancel(t.Context())
		_, err = Read(ctx, nil, func() (int, error) { cancel(); return 0, zk.ErrNoServer })
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestBackoff_DoublesPausesUntilQuietSecond checks that the pauses double up to their limit, and start again with
// the shortest pause after a second without a call of Next.
func TestBackoff_DoublesPausesUntilQuietSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff
		for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 250, 250} {
			pause := b.Next()
			require.Equal(t, want*time.Millisecond, pause)
			time.Sleep(pause)
		}
		time.Sleep(time.Second)
		require.Equal(t, 5*time.Millisecond, b.Next())
	})
}

const bufferSize = 64 << 10

// largeReplyTest is a test with replies that are too large: small is a client with a small receive buffer, and
// other is a client without a limit.
type largeReplyTest struct {
	*testing.T
	srv          *zktest.Server
	small, other *zk.Conn
}

func runLargeReplyTest(t *testing.T, f func(l largeReplyTest)) {
	synctest.Test(t, func(t *testing.T) {
		l := largeReplyTest{T: t, srv: zktest.Start(t)}
		l.small = l.connect(zk.WithMaxBufferSize(bufferSize))
		l.other = l.connect()
		f(l)
		synctest.Wait()
	})
}

func (l largeReplyTest) connect(options ...func(*zk.Conn)) *zk.Conn {
	conn, _, err := l.srv.Connect(4*time.Second, options...)
	require.NoError(l, err)
	_, _, err = conn.Exists("/")
	require.NoError(l, err)
	return conn
}

func (l largeReplyTest) create(path string, size int) {
	_, err := l.other.Create(path, make([]byte, size), 0, zk.WorldACL(zk.PermAll))
	require.NoError(l, err)
}

// countReconnects returns how often clients have connected since the last call of countReconnects.
func (l largeReplyTest) countReconnects() int {
	n := l.srv.Log().Count(zktest.OpConnect)
	l.srv.ResetLog()
	return n
}

func get(l largeReplyTest, path string) ([]byte, error) {
	return Read(l.Context(), l.small, func() ([]byte, error) {
		data, _, err := Get(l.small, path)
		return data, err
	})
}

func list(l largeReplyTest, path string) ([]string, error) {
	return Read(l.Context(), l.small, func() ([]string, error) {
		names, _, err := Children(l.small, path)
		return names, err
	})
}

// TestGet_RejectsTooLargeData checks that Get reads data that just fits into the receive buffer, and
// returns ErrTooLarge for one byte more after one disconnect. Further calls must return ErrTooLarge without a
// disconnect until the data changes.
func TestGet_RejectsTooLargeData(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
		const fits = bufferSize - 16 - 4 - 68
		l.create("/a", fits)
		l.create("/b", fits+1)
		l.countReconnects()
		data, err := get(l, "/a")
		require.NoError(l, err)
		require.Len(l, data, fits)
		require.Zero(l, l.countReconnects())
		for i := range 3 {
			_, err = get(l, "/b")
			require.ErrorIs(l, err, ErrTooLarge)
			require.ErrorContains(l, err, "the data of /b")
			require.Equal(l, map[bool]int{true: 1}[i == 0], l.countReconnects())
		}
		_, err = l.other.Set("/b", []byte("small"), -1)
		require.NoError(l, err)
		data, err = get(l, "/b")
		require.NoError(l, err)
		require.Equal(l, "small", string(data))
		require.Zero(l, l.countReconnects())

		require.NoError(l, l.other.Delete("/b", -1))
		_, err = get(l, "/b")
		require.ErrorIs(l, err, zk.ErrNoNode)
	})
}

// TestGetW_ReturnsWatchForTooLargeData checks that GetW returns a watch together with ErrTooLarge, and that the
// watch fires when the data becomes smaller.
func TestGetW_ReturnsWatchForTooLargeData(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
		l.create("/a", 100<<10)
		watch, err := Read(l.Context(), l.small, func() (<-chan zk.Event, error) {
			_, _, watch, err := GetW(l.small, "/a", true)
			return watch, err
		})
		require.ErrorIs(l, err, ErrTooLarge)
		_, err = l.other.Set("/a", nil, -1)
		require.NoError(l, err)
		require.Equal(l, zk.EventNodeDataChanged, (<-watch).Type)
		_, err = get(l, "/a")
		require.NoError(l, err)
	})
}

// TestChildren_RejectsTooLargeListAfterDisconnects checks that Children returns ErrTooLarge for a list that does
// not fit into the receive buffer, only after several disconnects, because the client does not know the size of the
// list.
func TestChildren_RejectsTooLargeListAfterDisconnects(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
		l.create("/many", 0)
		for i := range 1500 {
			l.create(fmt.Sprintf("/many/%s%d", strings.Repeat("x", 50), i), 0)
		}
		l.countReconnects()
		_, err := list(l, "/many")
		require.ErrorIs(l, err, ErrTooLarge)
		require.ErrorContains(l, err, "the list of children of /many")
		require.Equal(l, 4, l.countReconnects())
		_, err = list(l, "/many")
		require.ErrorIs(l, err, ErrTooLarge)
		require.Zero(l, l.countReconnects())
		l.create("/many/another", 0)
		_, err = list(l, "/many")
		require.ErrorIs(l, err, ErrTooLarge)
		require.Equal(l, 1, l.countReconnects(), "the list has changed, and may have become smaller")

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

// TestGet_IgnoresConnectionBrokenByOtherReply checks that requests that are in flight when a reply to another
// request breaks the connection do not fail with ErrTooLarge.
func TestGet_IgnoresConnectionBrokenByOtherReply(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
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
				require.ErrorIs(l, err, ErrTooLarge)
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

// TestGet_ToleratesUnrelatedDisconnects checks that Get and Children return no error if the connection breaks a few
// times for other reasons than the size of the reply.
func TestGet_ToleratesUnrelatedDisconnects(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
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

// TestGet_SendsNoExtraRequestWithoutLimit checks that Get sends no request for the size of the data if the receive
// buffer of the client has no limit.
func TestGet_SendsNoExtraRequestWithoutLimit(t *testing.T) {
	runLargeReplyTest(t, func(l largeReplyTest) {
		l.create("/a", 200<<10)
		l.srv.ResetLog()
		l.srv.After(zktest.Match{Op: zktest.OpGetData, Path: "/a", Nth: 1}, zktest.Cut)
		data, err := Read(l.Context(), l.other, func() ([]byte, error) {
			data, _, err := Get(l.other, "/a")
			return data, err
		})
		require.NoError(l, err)
		require.Len(l, data, 200<<10)
		asked := l.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpExists && e.Path == "/a" })
		require.Empty(l, asked)
	})
}
