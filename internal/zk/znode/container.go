package znode

// Containers, which servers remove when their last child is gone, and what is created
// instead on servers that do not know them.

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// maxBroken is the number of consecutive requests for a container that may break the
// connection before a persistent znode is created instead. Each time the connection has
// answered a read immediately before, so a network that fails so often in exactly this
// moment is unlikely. If it does, the directories that this connection creates remain after
// their last child is gone, which costs their znodes and nothing else.
const maxBroken = 3

// withoutContainers reports whether the servers of a connection do not know containers.
var withoutContainers = perconn.NewMap(func(*zk.Conn) *atomic.Bool { return new(atomic.Bool) })

// makeContainer creates node as a container. ZooKeeper before release 3.5 answers
// "unimplemented"; ClickHouse Keeper before release 26.7 closes the connection without an
// answer. On such servers makeContainer creates a persistent znode.
func makeContainer(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	var backoff request.Backoff
	unknown := withoutContainers.Of(conn)
	for broken := 0; broken < maxBroken && !unknown.Load(); {
		_, err := request.Do(ctx, func() (string, error) {
			return conn.CreateContainer(node, nil, zk.FlagContainer, acl)
		})
		switch {
		case unimplemented(err):
			broken = maxBroken
			continue
		case !request.Transient(err):
			return err
		case request.Closed(ctx, conn, err):
			return zkerror.ErrConnClosed
		case errors.Is(err, zk.ErrConnectionClosed):
			broken++
		}
		if err := request.Pause(ctx, backoff.Next()); err != nil {
			return err
		}
		// The answer shows that the connection works again, and whether the request
		// that broke it was carried out.
		exists, err := request.Read(ctx, conn, func() (bool, error) {
			exists, _, err := conn.Exists(node)
			return exists, err
		})
		if err != nil || exists {
			return err
		}
	}
	unknown.Store(true)
	return makePersistent(ctx, conn, node, acl)
}

// unimplemented reports whether the server does not know the operation that it was sent.
// The client library has no error value for this code.
func unimplemented(err error) bool { return err != nil && err.Error() == "unknown error: -6" }

func makePersistent(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL) error {
	return request.Retry(ctx, conn, func() error {
		_, err := conn.Create(node, nil, zk.FlagPersistent, acl)
		return err
	})
}
