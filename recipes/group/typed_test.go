package group

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

type worker struct{ State string }

// TestTyped_DecodesValues checks that a member has the value with which it has joined, or which it has set, and
// that a member whose data is in another format is returned with an error instead of being omitted.
func TestTyped_DecodesValues(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		g := newGroup(w, w.Connect())
		workers := Of(g, recipes.JSONCodec[worker]())
		a, err := workers.Join(w.Context(), "a", worker{"idle"})
		require.NoError(w, err)
		b := join(w, w.Connect(), "b", "{")
		values := func() (found []worker, errs []error) {
			members, err := g.Members(w.Context())
			require.NoError(w, err)
			for _, m := range members {
				v, err := workers.Value(m)
				found, errs = append(found, v), append(errs, err)
			}
			return found, errs
		}
		found, errs := values()
		require.Equal(w, []worker{{"idle"}, {}}, found)
		require.NoError(w, errs[0])
		require.ErrorIs(w, errs[1], recipes.ErrFormat)
		require.ErrorContains(w, errs[1], `value of member "b" of `+dir)
		require.NoError(w, workers.Set(w.Context(), a, worker{"busy"}))
		found, _ = values()
		require.Equal(w, worker{"busy"}, found[0])

		_, err = workers.Value(Member{ID: "c", Err: recipes.ErrPermission})
		require.ErrorIs(w, err, recipes.ErrPermission)
		names := newGroup(w, w.Connect(), WithoutData())
		members, err := names.Members(w.Context())
		require.NoError(w, err)
		_, err = Of(names, recipes.JSONCodec[worker]()).Value(members[0])
		require.ErrorIs(w, err, recipes.ErrInvalid)

		failure := errors.New("failure")
		invalid := Of(g, recipes.Codec[worker]{Encode: func(worker) ([]byte, error) { return nil, failure }})
		_, err = invalid.Join(w.Context(), "d", worker{})
		require.ErrorIs(w, err, failure)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		err = invalid.Set(w.Context(), a, worker{})
		require.ErrorIs(w, err, failure)
		_, err = invalid.Value(members[0])
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.NoError(w, a.Close())
		require.NoError(w, b.Close())
	})
}
