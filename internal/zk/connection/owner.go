package connection

import (
	"math"

	"github.com/go-zookeeper/zk"
)

// IsEphemeral reports whether the znode with this Stat belongs to a session and has no
// children. The Stat of a container has the owner 0 on Apache's servers and the smallest
// int64 on ClickHouse Keeper.
func IsEphemeral(stat *zk.Stat) bool {
	return stat.EphemeralOwner != 0 && stat.EphemeralOwner != math.MinInt64
}
