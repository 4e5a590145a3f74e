package identity_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// TestRefusals_StopEstablishedPeerOnlyByMajority checks that an established peer must stop if a majority of the
// voters refuses it, but not if a minority does, and that any other peer must stop if a single peer refuses its
// identity.
func TestRefusals_StopEstablishedPeerOnlyByMajority(t *testing.T) {
	type refusal struct {
		by     string
		reason link.Reason
		after  time.Duration
	}
	repeated := func(by string) (all []refusal) {
		for range 11 {
			all = append(all, refusal{by, link.ReasonRunning, time.Second})
		}
		return all
	}
	both := func() (all []refusal) {
		for range 11 {
			all = append(all, refusal{"b", link.ReasonRunning, time.Second}, refusal{"c", link.ReasonRunning, 0})
		}
		return all
	}
	for name, test := range map[string]struct {
		refusals      []refusal
		joins, member bool // whether a new peer must stop, and whether an established member must stop
	}{
		"instance, one voter":       {[]refusal{{"b", link.ReasonInstance, 0}}, true, false},
		"earlier, one voter":        {[]refusal{{"b", link.ReasonEarlier, 0}}, true, false},
		"recovered, one voter":      {[]refusal{{"b", link.ReasonRecovered, 0}}, true, false},
		"one voter repeatedly":      {[]refusal{{"b", link.ReasonInstance, 0}, {"b", link.ReasonEarlier, time.Second}}, true, false},
		"a voter and another peer":  {[]refusal{{"b", link.ReasonInstance, 0}, {"x", link.ReasonInstance, 0}}, true, false},
		"two voters":                {[]refusal{{"b", link.ReasonInstance, 0}, {"c", link.ReasonEarlier, time.Second}}, true, true},
		"two voters, far apart":     {[]refusal{{"b", link.ReasonInstance, 0}, {"c", link.ReasonInstance, time.Minute}}, true, false},
		"two voters, founding":      {[]refusal{{"b", link.ReasonFounding, 0}, {"c", link.ReasonFounding, 0}}, true, false},
		"two voters, no commits":    {[]refusal{{"b", link.ReasonUncommitted, 0}, {"c", link.ReasonUncommitted, 0}}, false, false},
		"two voters, other reasons": {[]refusal{{"b", link.ReasonCluster, 0}, {"c", link.ReasonSecret, 0}}, false, false},
		"running, at first":         {[]refusal{{"b", link.ReasonRunning, 0}, {"c", link.ReasonRunning, 0}}, false, false},
		"running, one voter":        {repeated("b"), true, false},
		"running, two voters":       {both(), true, true},
	} {
		for _, established := range []bool{false, true} {
			var r identity.Refusals
			now, stops := time.Hour, false
			for _, f := range test.refusals {
				now += f.after
				stops = r.Add(f.by, f.reason, now, established, []string{"a", "b", "c"}) || stops
			}
			want := test.joins
			if established {
				want = test.member
			}
			require.Equal(t, want, stops, "%s, established: %t", name, established)
		}
	}
}
