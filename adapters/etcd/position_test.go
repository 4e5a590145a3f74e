package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPosition_RecognizesLostData checks that lostSince returns true after a loss of data, and false
// for a cluster that has continued.
func TestPosition_RecognizesLostData(t *testing.T) {
	known := position{cluster: 1, revision: 20, nodeRev: 10}
	for name, c := range map[string]struct {
		now  position
		lost bool
	}{
		"the same":               {known, false},
		"later":                  {position{1, 21, 10}, false},
		"election was ended":     {position{1, 21, 0}, false},
		"election was created":   {position{1, 21, 21}, false},
		"older revision":         {position{1, 19, 10}, true},
		"emptied":                {position{1, 1, 0}, true},
		"older election node":    {position{1, 21, 9}, true},
		"cluster of another ID":  {position{2, 21, 10}, true},
		"other ID, election new": {position{2, 30, 25}, true},
	} {
		require.Equal(t, c.lost, c.now.lostSince(known), name)
		require.False(t, c.now.lostSince(position{}), "%s, nothing known", name)
	}
}

// FuzzNamedLease parses arbitrary keys below an election node. If namedLease returns a lease, then keyName of that
// lease must be the same key.
func FuzzNamedLease(f *testing.F) {
	f.Add("/e", "/e/694d81417acd4f7e")
	f.Add("/e", "/e/00ff")
	f.Add("", "/-1")
	f.Fuzz(func(t *testing.T, node, key string) {
		if lease := namedLease(node, key); lease != 0 {
			require.Equal(t, key, keyName(node, lease))
		}
	})
}
