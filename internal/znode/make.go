package znode

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// Make creates node and its parents where they are missing. The parents are
// persistent. So is node, unless container says that the ensemble may remove it
// once it is empty again (servers from release 3.5 on). That something exists
// already is fine.
func Make(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
	for {
		err := makeOne(ctx, conn, node, acl, container)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := Make(ctx, conn, path.Dir(node), acl, false); err != nil {
			return err
		}
	}
}

func makeOne(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
	create := func() error {
		if container {
			_, err := conn.CreateContainer(node, nil, zk.FlagContainer, acl)
			return err
		}
		_, err := conn.Create(node, nil, zk.FlagPersistent, acl)
		return err
	}
	err := request.Retry(ctx, conn, create)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
