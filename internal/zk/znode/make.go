package znode

import (
	"context"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"
)

// Make creates node and those of its parents that do not exist. The parents are
// persistent. With container node is a container, which the ensemble may remove when its
// last child is gone; on servers that do not know containers it is persistent. A node that
// exists already is not changed.
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
	create := makePersistent
	if container {
		create = makeContainer
	}
	if err := create(ctx, conn, node, acl); !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	return nil
}
