package connection

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// maxBroken is the number of consecutive requests for a container that may break the connection
// before makeContainer creates a persistent znode instead. Before each of them the server has
// answered a read, so it is unlikely that the network fails each time in this moment. If it does,
// the directories that this connection creates remain after their last child was deleted, which
// costs their znodes and nothing else.
const maxBroken = 3

// withoutContainers reports whether the servers of a connection do not implement containers.
var withoutContainers = NewMap(func(*zk.Conn) *atomic.Bool { return new(atomic.Bool) })

// makeContainer creates node as a container. ZooKeeper before release 3.5 returns
// "unimplemented"; ClickHouse Keeper before release 26.7 closes the connection without a reply.
// On such servers makeContainer creates a persistent znode. So the request is not retried by
// this package: after several failures, another request is sent.
func makeContainer(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	var backoff Backoff
	unsupported := withoutContainers.Of(conn)
	for broken := 0; broken < maxBroken && !unsupported.Load(); {
		_, err := Do(ctx, func() (string, error) {
			return conn.CreateContainer(node, nil, zk.FlagContainer, acl)
		})
		switch {
		case err == nil:
			return nil
		case zkerror.Is(err, zkerror.Unimplemented):
			broken = maxBroken
			continue
		case errors.Is(err, zk.ErrConnectionClosed):
			broken++
		}
		if final := Final(ctx, conn, err); final != nil {
			return final
		}
		if err := limit.Pause(ctx, backoff.Next()); err != nil {
			return err
		}
		// The reply shows that the connection works again, and whether the request that broke
		// it was applied.
		exists, err := Read(ctx, conn, func() (bool, error) {
			exists, _, err := conn.Exists(node)
			return exists, err
		})
		if err != nil || exists {
			return err
		}
	}
	unsupported.Store(true)
	return makePersistent(ctx, conn, node, acl)
}

func makePersistent(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	return Retry(ctx, conn, func() error {
		_, err := conn.Create(node, nil, zk.FlagPersistent, acl)
		return err
	})
}
