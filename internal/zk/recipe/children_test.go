package recipe

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnparsable = errors.New("unparsable")

// parseText parses the data of a child as a string. For the data "error" it returns an error.
func parseText(name string, found watch.Found, err error) (string, error) {
	if string(found.Data) == "error" {
		return "", errUnparsable
	}
	return string(found.Data), err
}

// runTest runs f in a bubble with a server that stores /dir with the children a and b. setup belongs to the
// connection of the reader.
func runTest(t *testing.T, f func(w *bubble.Test, setup *Setup)) {
	bubble.Run(t, func(w *bubble.Test) {
		w.Operator = w.Connect()
		for _, node := range []string{"/dir", "/dir/a", "/dir/b"} {
			_, err := w.Operator.Create(node, []byte("1"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		setup, err := New(w.Connect(), "/dir", nil, Shared.ApplyGroup)
		require.NoError(w, err)
		w.Server.ResetLog()
		f(w, setup)
	})
}

func countRequests(w *bubble.Test) int { return len(w.Server.Log().Requests()) }

// TestChildReader_ReadsOnlyChangedChildren checks that a ChildReader reads only the children that have changed
// since its last read, and notices each change.
func TestChildReader_ReadsOnlyChangedChildren(t *testing.T) {
	runTest(t, func(w *bubble.Test, setup *Setup) {
		r := NewChildReader(setup, ChildConfig[string]{Path: "/dir", Parse: parseText}, false)
		defer r.Close()
		values, err := r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "1"}, values)
		require.Equal(w, 3, countRequests(w), "the list and the children")

		_, err = w.Operator.Set("/dir/b", []byte("2"), -1)
		require.NoError(w, err)
		require.NoError(w, r.Wait(w.Context(), nil))
		w.Server.ResetLog()
		values, err = r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "2"}, values)
		require.Equal(w, 1, countRequests(w), "%v", w.Server.Log())

		require.NoError(w, w.Operator.Delete("/dir/a", -1))
		require.NoError(w, r.Wait(w.Context(), nil))
		values, err = r.Read(w.Context())
		require.NoError(w, err)
		require.Equal(w, map[string]string{"b": "2"}, values)

		_, err = w.Operator.Set("/dir/b", []byte("error"), -1)
		require.NoError(w, err)
		for err == nil { // the first event may be the event of the list, which the deletion has changed
			require.NoError(w, r.Wait(w.Context(), nil))
			_, err = r.Read(w.Context())
		}
		require.ErrorIs(w, err, errUnparsable)
	})
}

// TestChildReader_WatchesZnodeThatIsCreatedLater checks that a ChildReader watches a znode that does not exist yet,
// and reads no data with NamesOnly.
func TestChildReader_WatchesZnodeThatIsCreatedLater(t *testing.T) {
	runTest(t, func(w *bubble.Test, setup *Setup) {
		r := NewChildReader(setup, ChildConfig[string]{
			Path: "/later", NamesOnly: true, Parse: parseText, Skip: func(name string) bool { return name == "skipped" },
		}, true)
		defer r.Close()
		values, err := r.Read(w.Context())
		require.NoError(w, err)
		require.Empty(w, values)
		for _, node := range []string{"/later", "/later/a", "/later/skipped"} {
			_, err := w.Operator.Create(node, []byte("1"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		for len(values) == 0 {
			require.NoError(w, r.Wait(w.Context(), nil))
			values, err = r.Read(w.Context())
			require.NoError(w, err)
		}
		require.Equal(w, []string{"a"}, slices.Collect(maps.Keys(values)))
		require.Zero(w, w.Server.Log().Count(zktest.OpGetData))
	})
}

// TestChildReader_WaitReturnsWhenConnectionIsClosed checks that Wait returns ErrConnClosed when the connection is
// closed.
func TestChildReader_WaitReturnsWhenConnectionIsClosed(t *testing.T) {
	runTest(t, func(w *bubble.Test, setup *Setup) {
		r := NewChildReader(setup, ChildConfig[string]{Path: "/dir", Parse: parseText}, false)
		defer r.Close()
		_, err := r.Read(w.Context())
		require.NoError(w, err)
		setup.Conn.Close()
		require.ErrorIs(w, r.Wait(w.Context(), nil), connection.ErrConnClosed)
	})
}

// TestListChildren_SetsNoWatch checks that ListChildren sets no watch, and returns no error if the znode does not
// exist.
func TestListChildren_SetsNoWatch(t *testing.T) {
	runTest(t, func(w *bubble.Test, setup *Setup) {
		values, err := ListChildren(w.Context(), setup.Conn, ChildConfig[string]{Path: "/dir", Parse: parseText})
		require.NoError(w, err)
		require.Equal(w, map[string]string{"a": "1", "b": "1"}, values)
		values, err = ListChildren(w.Context(), setup.Conn, ChildConfig[string]{Path: "/none", Parse: parseText})
		require.NoError(w, err)
		require.Empty(w, values)
		require.Empty(w, w.Server.Watches())
	})
}
