package discovery

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestTyped_DecodesValues checks that an instance has the payload with which a client has registered or updated
// it, and that an instance whose payload is in another format is returned with an error instead of being omitted.
func TestTyped_DecodesValues(t *testing.T) {
	type location struct {
		Zone string `json:"zone"`
	}
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		located := Of(d, recipes.JSONCodec[location]())
		first, err := located.Register(w.Context(), instance("a"), location{"north"})
		require.NoError(w, err)
		second, err := d.Register(w.Context(), Instance{Name: "shop", ID: "b", Payload: json.RawMessage(`"south"`)})
		require.NoError(w, err)
		third := register(w, d, "c")
		payloads := func() (found []location, errs []error) {
			instances, err := d.Instances(w.Context(), "shop")
			require.NoError(w, err)
			for _, i := range instances {
				v, err := located.Value(i)
				found, errs = append(found, v), append(errs, err)
			}
			return found, errs
		}
		found, errs := payloads()
		require.Equal(w, []location{{"north"}, {}, {}}, found)
		require.NoError(w, errs[0])
		require.ErrorIs(w, errs[1], recipes.ErrFormat)
		require.ErrorContains(w, errs[1], `payload of instance "b" of "shop"`)
		require.NoError(w, errs[2], "an instance without a payload has the zero value")
		require.NoError(w, located.Update(w.Context(), first, first.Instance(), location{"west"}))
		found, _ = payloads()
		require.Equal(w, location{"west"}, found[0])

		_, err = Of(d, recipes.StringCodec()).Register(w.Context(), instance("d"), "not JSON")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		channels := Of(d, recipes.JSONCodec[chan int]())
		_, err = channels.Register(w.Context(), instance("d"), nil)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.ErrorIs(w, channels.Update(w.Context(), first, first.Instance(), nil), recipes.ErrInvalid)
		for _, r := range []*Registration{first, second, third} {
			require.NoError(w, r.Close())
		}
	})
}
