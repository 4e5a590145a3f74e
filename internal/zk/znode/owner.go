package znode

import (
	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
)

// IsEphemeral is [session.IsEphemeral], for packages that need no session.
func IsEphemeral(stat *zk.Stat) bool { return session.IsEphemeral(stat) }
