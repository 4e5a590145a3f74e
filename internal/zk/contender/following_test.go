package contender

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFollowing_IsPredicted checks that the name of the next contender of a client is the name that its predecessor's
// name predicts.
func TestFollowing_IsPredicted(t *testing.T) {
	guid := [guidLength / 2]byte{15: 0xfe, 14: 0xff, 13: 0xff, 12: 0xff, 11: 7}
	for _, naming := range []Naming{CuratorLatch, CuratorLock, CuratorWrite, CuratorRead, Kazoo} {
		for range 3 { // so often that the counter overflows
			name := naming.NamePrefix(GUIDOf(guid)) + "0000000003"
			guid = NextGUID(guid)
			require.Equal(t, naming.NamePrefix(GUIDOf(guid))+"0000000099", Following(name, latch(100)))
			require.EqualValues(t, 7, guid[11])
		}
	}
	ours := CuratorLock.NamePrefix(GUIDOf(guid))
	for name, of := range map[string]string{
		"":                latch(7), // there is no earlier contender
		"lock-0000000003": latch(7),
		"_c_" + GUIDOf(guid) + "-lock-0000000003":                 latch(7), // a name of another library
		"_c_00000000-0000-4000-8000-000000000000-lock-0000000003": latch(7),
		"_c_00000000-0000-8e1e-8000-00000000000g-lock-0000000003": latch(7),
		ours:                latch(7), // the name contains no number
		ours + "0000000003": latch(0), // the contender is the first
		ours + "0000000004": "config",
		ours + "0000000005": latch(math.MinInt32 + 1), // Curator cannot parse the negative number
	} {
		require.Empty(t, Following(name, of), name)
	}
}
