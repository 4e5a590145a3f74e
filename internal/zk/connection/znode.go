package connection

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// The limits of what users choose and many requests contain. They keep a transaction about 200 znodes
// below the size of a request that servers accept.
const (
	maxPath = 4 << 10
	maxACL  = 64 << 10
)

// CheckPath returns ErrInvalid for the root, for paths that ZooKeeper does not accept, and
// for paths that are too long. Servers handle a character above U+FFFF as two surrogates, which they do
// not accept.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: path %q does not begin with a slash", ErrInvalid, node)
	case node == "/":
		return fmt.Errorf("%w: path: the root cannot be used", ErrInvalid)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: path %q, did you mean %q?", ErrInvalid, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
	}):
		return fmt.Errorf("%w: path %q has a character that ZooKeeper does not accept", ErrInvalid, node)
	case len(node) > maxPath:
		return fmt.Errorf("%w: path %q and so on has %d bytes, at most %d", ErrInvalid, node[:40], len(node), maxPath)
	}
	return nil
}

// CheckACL returns ErrInvalid if acl cannot be that of a znode.
func CheckACL(acl []zk.ACL) error {
	size := 0
	for _, a := range acl {
		size += 12 + len(a.Scheme) + len(a.ID)
	}
	switch {
	case len(acl) == 0:
		return fmt.Errorf("%w: WithACL: the list is empty", ErrInvalid)
	case size > maxACL:
		return fmt.Errorf("%w: WithACL: %d bytes, at most %d", ErrInvalid, size, maxACL)
	}
	return nil
}

// MakeZnode creates node and those of its parents that do not exist. The parents are containers, which
// the ensemble may remove after their last child was deleted. So is node if container is true. On
// servers that do not implement containers, they are persistent. A znode that exists is not changed.
func MakeZnode(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
	create := makePersistent
	if container {
		create = makeContainer
	}
	for {
		err := create(ctx, conn, node, acl)
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := MakeZnode(ctx, conn, path.Dir(node), acl, true); err != nil {
			return err
		}
	}
}

// IsEphemeral reports whether the znode with this Stat belongs to a session and has no
// children. The Stat of a container has the owner 0 on Apache's servers and the smallest
// int64 on ClickHouse Keeper.
func IsEphemeral(stat *zk.Stat) bool {
	return stat.EphemeralOwner != 0 && stat.EphemeralOwner != math.MinInt64
}

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
		case HasCode(err, Unimplemented):
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
