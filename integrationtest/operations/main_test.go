// Package operations tests elections on ZooKeeper, etcd, PostgreSQL, MariaDB, Redis and NATS while operators work
// on their servers.
package operations

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, which is the preferred backend
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the name of the elections in these tests.
const node = "/operations"
