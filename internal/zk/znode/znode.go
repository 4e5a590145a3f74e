// Package znode checks paths and creates the persistent znodes above those of elections and
// recipes.
package znode

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// CheckPath returns zkerror.ErrInvalidPath for the root, and for paths that ZooKeeper does not
// accept.
func CheckPath(node string) error {
	switch {
	case !strings.HasPrefix(node, "/"):
		return fmt.Errorf("%w: %q does not begin with a slash", zkerror.ErrInvalidPath, node)
	case node == "/":
		return fmt.Errorf("%w: the root cannot be used", zkerror.ErrInvalidPath)
	case path.Clean(node) != node:
		return fmt.Errorf("%w: %q, did you mean %q?", zkerror.ErrInvalidPath, node, path.Clean(node))
	case strings.ContainsFunc(node, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
	}):
		return fmt.Errorf("%w: %q has a character that ZooKeeper does not accept", zkerror.ErrInvalidPath, node)
	}
	return nil
}

// Make creates node and those of its parents that do not exist. The parents are persistent. If
// container is true, node is a container, which the ensemble may remove after its last child was
// deleted; on servers that do not implement containers it is persistent. A node that exists is
// not changed.
func Make(ctx context.Context, conn *zk.Conn, node string, acl []zk.ACL, container bool) error {
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
		if err := Make(ctx, conn, path.Dir(node), acl, false); err != nil {
			return err
		}
	}
}
