package recipe

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a test in a bubble with a server that stores /dir with the children a and b.
type fixture struct {
	*testing.T
	srv   *zktest.Server
	setup *Setup // of the reader
	other *zk.Conn
}

var errUnparsable = errors.New("unparsable")

// texts parses the data of a child as a text. The text "error" is an error of the child.
func texts(name string, found watch.Found, err error) (string, error) {
	if string(found.Data) == "error" {
		return "", errUnparsable
	}
	return string(found.Data), err
}

func runTest(t *testing.T, f func(w fixture)) {
	synctest.Test(t, func(t *testing.T) {
		w := fixture{T: t, srv: zktest.Start(t)}
		connect := func() *zk.Conn { return bubble.Connect(t, w.srv, 4*time.Second) }
		w.other = connect()
		for _, node := range []string{"/dir", "/dir/a", "/dir/b"} {
			_, err := w.other.Create(node, []byte("1"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		var err error
		w.setup, err = New(connect(), "/dir", nil, Shared.ApplyGroup)
		require.NoError(t, err)
		synctest.Wait()
		w.srv.ResetLog()
		f(w)
	})
}

func (w fixture) requests() int { return len(w.srv.Log().Requests()) }

// Fails if children that have not changed are read again, or changes are not detected.
func TestReader_ReadsWhatHasChanged(t *testing.T) {
	runTest(t, func(w fixture) {
		r := NewChildReader(w.setup, ChildConfig[string]{Path: "/dir", Parse: texts}, false)
		defer r.Close()
		values, err := r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "1"}, values)
		require.Equal(w, 3, w.requests(), "the list and the children")

		_, err = w.other.Set("/dir/b", []byte("2"), -1)
		require.NoError(w, err)
		require.NoError(w, r.Wait(w.Context(), nil))
		w.srv.ResetLog()
		values, err = r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "2"}, values)
		require.Equal(w, 1, w.requests(), "%v", w.srv.Log())

		require.NoError(w, w.other.Delete("/dir/a", -1))
		require.NoError(w, r.Wait(w.Context(), nil))
		values, err = r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"b": "2"}, values)

		_, err = w.other.Set("/dir/b", []byte("error"), -1)
		require.NoError(w, err)
		for err == nil { // the first event may be that of the list, which the deletion has changed
			require.NoError(w, r.Wait(w.Context(), nil))
			_, err = r.Read(w.Context())
		}
		require.ErrorIs(w, err, errUnparsable)
	})
}

// Fails if a znode that does not exist yet is not watched, or data is read without need.
func TestReader_NamesOnlyOfAZnodeThatIsCreatedLater(t *testing.T) {
	runTest(t, func(w fixture) {
		r := NewChildReader(w.setup, ChildConfig[string]{
			Path: "/later", NamesOnly: true, Parse: texts, Skip: func(name string) bool { return name == "skipped" },
		}, true)
		defer r.Close()
		values, err := r.Read(w.Context())
		require.NoError(w, err)
		require.Empty(w, values)
		for _, node := range []string{"/later", "/later/a", "/later/skipped"} {
			_, err := w.other.Create(node, []byte("1"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		for len(values) == 0 {
			require.NoError(w, r.Wait(w.Context(), nil))
			values, err = r.Read(w.Context())
			require.NoError(w, err)
		}
		require.Equal(w, []string{"a"}, slices.Collect(maps.Keys(values)))
		require.Zero(w, w.srv.Log().Count(zktest.OpGetData))
	})
}

// Fails if Wait does not end when the connection is closed.
func TestReader_ConnectionClosed(t *testing.T) {
	runTest(t, func(w fixture) {
		r := NewChildReader(w.setup, ChildConfig[string]{Path: "/dir", Parse: texts}, false)
		defer r.Close()
		_, err := r.Read(w.Context())
		require.NoError(w, err)
		w.setup.Conn.Close()
		require.ErrorIs(w, r.Wait(w.Context(), nil), connection.ErrConnClosed)
	})
}

// Fails if a missing znode is an error, or if ListChildren sets watches.
func TestListChildren(t *testing.T) {
	runTest(t, func(w fixture) {
		values, err := ListChildren(w.Context(), w.setup.Conn, ChildConfig[string]{Path: "/dir", Parse: texts})
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "1"}, values)
		values, err = ListChildren(w.Context(), w.setup.Conn, ChildConfig[string]{Path: "/none", Parse: texts})
		require.NoError(w, err)
		require.Empty(w, values)
		require.Empty(w, w.srv.Watches())
	})
}
